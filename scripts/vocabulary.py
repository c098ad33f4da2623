"""Counts words that the project does not use any more, against a baseline that may only fall.

Run by `make lint`. `--update` writes the counts of today into the baseline, and refuses to raise one.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BASELINE = Path(__file__).with_name("vocabulary.tsv")
PLACES = (("src/millrace", "*.py"), ("docs", "*.md"), (".", "README.md"), (".", "CONTRIBUTING.md"))
REPLACEMENTS = {
    r"told": "reports, reported",
    r"anew": "again, from scratch",
    r"bur(?:y|ies|ied|ial|ials)": "write to the dead letter topic",
    r"mend(?:s|ed|ing)?": "fix",
    r"whoever": "the user, the process",
    r"so many": "N, at most N",
    r"in hand": "running",
    r"goes on|go on": "continues, resumes",
    r"undertaker|grave|lane|outlet|tenure|gallery|diary": "the term of Kafka or Spark",
}


def texts() -> Iterator[tuple[Path, str]]:
    """Yield every file that is looked at, and its text."""
    for folder, pattern in PLACES:
        paths = (ROOT / folder).glob(pattern) if folder == "." else (ROOT / folder).rglob(pattern)
        yield from ((path, path.read_text()) for path in sorted(paths))


def count() -> tuple[Counter[str], dict[str, list[str]]]:
    """Return how often each word is used, and where."""
    counts: Counter[str] = Counter(dict.fromkeys(REPLACEMENTS, 0))
    places: dict[str, list[str]] = {word: [] for word in REPLACEMENTS}
    for path, text in texts():
        for number, line in enumerate(text.splitlines(), start=1):
            for word in REPLACEMENTS:
                # Parts of identifiers count: `_told`, `so_many`.
                for _ in re.findall(rf"(?<![a-z]){word.replace(' ', '[ _]')}(?![a-z])", line, re.IGNORECASE):
                    counts[word] += 1
                    places[word].append(f"{path.relative_to(ROOT)}:{number}")
    return counts, places


def read_baseline() -> dict[str, int]:
    """Return the counts that are allowed."""
    rows = [line.split("\t") for line in BASELINE.read_text().splitlines()]
    return {word: int(number) for word, number in rows}


def main() -> None:
    """Compare, and end with 1 when a count is above the baseline."""
    counts, places = count()
    baseline = read_baseline() if BASELINE.exists() else dict(counts)
    raised = [word for word in REPLACEMENTS if counts[word] > baseline.get(word, 0)]
    for word in raised:
        where = ", ".join(places[word][:20])
        print(f"{word!r} is used {counts[word]} times, at most {baseline.get(word, 0)} are allowed: {where}")
        print(f"  write: {REPLACEMENTS[word]}")
    if raised:
        sys.exit(1)
    if "--update" in sys.argv:
        BASELINE.write_text("".join(f"{word}\t{counts[word]}\n" for word in REPLACEMENTS))
    elif fallen := [word for word in REPLACEMENTS if counts[word] < baseline[word]]:
        print(f"fewer than in the baseline: {', '.join(fallen)}; keep it so: python scripts/vocabulary.py --update")


if __name__ == "__main__":
    main()
