// A panel that cannot be drawn: why, and its rows as they are.
import type { JSX } from "preact";
import { Trouble } from "../parts/trouble";
import type { Failure, PanelData } from "../wire/types";
import { Rows } from "./rows";

export function AsIs({ failure, data }: { failure: Failure; data: PanelData }): JSX.Element {
  return (
    <>
      <Trouble failure={failure} />
      {data.columns.length > 0 && <Rows label="rows" columns={data.columns} types={data.types} rows={data.rows} />}
    </>
  );
}
