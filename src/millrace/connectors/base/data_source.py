"""Sources of ours in Spark's Python Data Source API."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def data_source(
    own_name: str, ddl: str, make_reader: Callable[[StructType], DataSourceReader | DataSourceStreamReader]
) -> type[DataSource]:
    """Return a data source. It is a class of its own: options would be shown in Spark's plans and logs."""

    class OwnDataSource(DataSource):  # type: ignore[misc]  # pyspark's types are not read
        @classmethod
        def name(cls) -> str:
            return own_name

        def schema(self) -> str:
            return ddl

        def reader(self, schema: StructType) -> DataSourceReader:
            return make_reader(schema)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
            return make_reader(schema)

    return OwnDataSource
