"""Short texts of several kinds: how many drafted tokens are accepted depends on the kind."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """A prompt of one kind."""

    kind: str
    prompt: str


SAMPLES = (
    Sample("question", "Why is the sky blue during the day and red in the evening?"),
    Sample(
        "code",
        "Write a Python function that returns the n-th Fibonacci number without recursion, with a "
        "docstring and an example.",
    ),
    Sample(
        "summary",
        "Summarize in two sentences: The old lighthouse at Cape Morn was built in 1871 after three "
        "ships had been lost in one winter. For ninety years its keepers climbed 212 steps every "
        "evening to light the lamp. In 1961 the lamp was automated, the last keeper moved to the "
        "village, and the tower fell into disrepair until the villagers bought it for one pound "
        "and made it a museum.",
    ),
    Sample("story", "Tell a short story about a fox who learns to play the violin."),
    Sample(
        "translation",
        "Translate into French: The train to the coast leaves at seven in the morning, and the "
        "journey takes about three hours.",
    ),
)
