"""A small pipeline that tests of tests are about: lines become words."""

from __future__ import annotations

PIPELINE = """\
name: words
sources:
  lines: {kafka: lines, format: text}
tables:
  words: SELECT explode(split(value, ' ')) AS word FROM lines
sinks:
  - {from: words, console: {}}
"""
