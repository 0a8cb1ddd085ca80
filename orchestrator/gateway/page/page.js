/** The page: a conversation on one side, the cluster on the other. */
import { show as showLegend } from "./authors.js";
import { Chat } from "./chat.js";
import { ClusterPanel } from "./cluster.js";
import { byId, say } from "./dom.js";
import { key } from "./endpoint.js";
import { bindTheme } from "./scheme.js";

function wantKey() {
  byId("key-form").hidden = false;
  byId("forget-key").hidden = true;
  byId("key").focus();
}

const chat = new Chat({ onKeyWanted: wantKey });
const panel = new ClusterPanel({
  onKeyWanted: wantKey,
  onState(state) {
    say(byId("model"), state.verify.model ?? "");
    showLegend(byId("legend"), state.drafts.map(({ name }) => name));
  },
});

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key.set(byId("key").value.trim());
  byId("key").value = "";
  byId("key-form").hidden = true;
  byId("forget-key").hidden = !key.get();
  byId("prompt").focus();
  panel.watch();
});
byId("forget-key").hidden = !key.get();
byId("forget-key").addEventListener("click", () => {
  key.set("");
  byId("forget-key").hidden = true;
  panel.watch();
});

function disclose(button, region, onShown = () => {}) {
  button.addEventListener("click", () => {
    const isOpen = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!isOpen));
    onShown(!isOpen, region);
  });
}
disclose(byId("show-settings"), byId("settings"), (isOpen, region) => (region.hidden = !isOpen));
disclose(byId("show-cluster"), byId("cluster"), (isOpen) =>
  document.body.classList.toggle("cluster-shown", isOpen),
);
byId("new-chat").addEventListener("click", () => chat.restart());

bindTheme(byId("theme"));
showLegend(byId("legend"), []);
panel.watch();
byId("prompt").focus({ preventScroll: true });
