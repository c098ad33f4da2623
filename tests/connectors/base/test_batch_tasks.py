"""Rows are in the same tasks whenever a batch comes again."""

from __future__ import annotations

import pytest

from millrace.connectors.base.batch_tasks import _partitions_by_position


@pytest.mark.parametrize(
    ("plan", "turned"),
    [
        ("Repartition 4, true", True),
        ("RepartitionByExpression [id#0L], 4", False),
        ("RepartitionByExpression [id#0L ASC NULLS FIRST, at#1 DESC NULLS LAST], 4", True),
        ("Project [id#0L]\n+- RepartitionByExpression [id#0L DESC NULLS LAST]", True),
        ("Sort [id#0L ASC NULLS FIRST], true", True),
        ("Sort [id#0L ASC NULLS FIRST], false", False),
        ("Union false, false\n:- CTERelationRef 0, true, [n#4]\n+- CTERelationRef 0, true, [n#9]", True),
        ("Union false, false\n:- CTERelationRef 0, true, [n#4]\n+- CTERelationRef 1, true, [n#9]", False),
    ],
)
def test_rows_that_may_be_in_other_tasks_each_time(plan: str, turned: bool) -> None:
    assert _partitions_by_position(plan) == turned
