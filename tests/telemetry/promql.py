"""What a PromQL expression asks for, held against what services really export."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

OF_THE_SCRAPE = {"job", "instance"}
"""Labels that Prometheus itself adds."""

SELECTOR = re.compile(r"\b((?:outrider_|up\b)\w*)(?:\{([^}]*)\})?(\[[^]]*\])?")
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
FUNCTION = re.compile(r"\b(rate|increase|irate)\(\s*([\w:]+)")
QUANTILE = re.compile(r"histogram_quantile\(\s*[\d.]+,\s*(.*?)\)\)")
GROUPING = re.compile(r"\b(?:by|ignoring|on|without)\s*\(([^)]*)\)")


@dataclass
class Exported:
    """A sample name's type, and the values of each of its labels."""

    kind: str
    labels: dict[str, set[str]] = field(default_factory=dict)


def exported(pages: Iterable[str]) -> dict[str, Exported]:
    """By the names of the samples of all pages, as Prometheus would store them."""
    found: dict[str, Exported] = {}
    for page in pages:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                one = found.setdefault(sample.name, Exported(family.type))
                assert one.kind == family.type, f"{sample.name} has two types"
                for label, value in sample.labels.items():
                    one.labels.setdefault(label, set()).add(value)
    return found


def problems(expression: str, known: dict[str, Exported]) -> list[str]:
    """Why it would not do what it looks like; none: it does."""
    selectors = SELECTOR.findall(expression)
    found = [] if selectors else ["it asks for nothing of ours"]
    every_label = {"le", *OF_THE_SCRAPE}
    for name, matchers, window in selectors:
        if name == "up":
            continue
        if name not in known:
            found.append(f"{name} is not exported")
            continue
        one = known[name]
        every_label |= set(one.labels)
        is_counter = one.kind == "counter" or (
            one.kind == "histogram" and name.endswith(("_bucket", "_sum", "_count"))
        )
        if is_counter != bool(window):
            found.append(f"{name} is a {one.kind} {'with' if window else 'without'} a window")
        for label, operator, value in MATCHER.findall(matchers):
            if label in OF_THE_SCRAPE:
                continue
            if label not in one.labels:
                found.append(f"{name} has no label {label}")
            elif operator == "=" and value not in one.labels[label]:
                found.append(f"{name} never has {label}={value}")
    for _, name in FUNCTION.findall(expression):
        if name in known and known[name].kind == "gauge":
            found.append(f"{name} is a gauge and has no rate")
    for inner in QUANTILE.findall(expression):
        if not re.search(r"\bby \(le\)", inner) or "_bucket" not in inner:
            found.append("a quantile is not of buckets by le")
    if expression.count("histogram_quantile") != len(QUANTILE.findall(expression)):
        found.append("a quantile is not understood")
    for names in GROUPING.findall(expression):
        for label in filter(None, map(str.strip, names.split(","))):
            if label not in every_label:
                found.append(f"nothing of it has the label {label}")
    return found
