// One panel: its title, how fresh it is, its drawing, and the same as a table.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { count } from "../format";
import { Icon } from "../parts/icon";
import { asFailure, Trouble } from "../parts/trouble";
import { clockTime, When } from "../parts/when";
import { href } from "../route";
import { visible } from "../text";
import { slot, troubles } from "../wire/channels";
import type { Panel, PanelData } from "../wire/types";
import { useChannels } from "../wire/wanted";
import { Heat } from "./heat";
import { NumberPanel } from "./number";
import { Rows } from "./rows";
import { Series } from "./series";
import { Top } from "./top";

const KINDS = { series: Series, top: Top, heat: Heat, number: NumberPanel };

export function PanelCard({ panel }: { panel: Panel }): JSX.Element {
  const channel = `panel:${panel.id}`;
  useChannels(channel);
  const asTable = useSignal(false);
  const data = slot(channel).value.value as PanelData | null;
  const failure = asFailure(data?.error ?? panel.error ?? troubles.value[channel]);
  const drawn = panel.kind !== "table" && !asTable.value;
  return (
    <article class={`card panel ${panel.kind}`} id={`panel-${panel.id}`} aria-label={panel.title || panel.table}>
      <header>
        <h2>{visible(panel.title || panel.table)}</h2>
        {panel.inferred && (
          <span class="tag" title="nobody declared this panel; it was guessed from the table's columns">
            inferred
          </span>
        )}
        <span class="gap" />
        <Note data={data} />
        {panel.kind !== "table" && (
          <button
            type="button"
            class="plain"
            aria-pressed={asTable.value}
            aria-label="Show as a table"
            title="Show as a table"
            onClick={() => {
              asTable.value = !asTable.value;
            }}
          >
            <Icon name="table" />
          </button>
        )}
      </header>
      {failure && <Trouble failure={failure} />}
      {data ? (
        drawn ? (
          <Drawn panel={panel} data={data} />
        ) : (
          <Rows
            label={panel.title || panel.table}
            columns={data.columns}
            types={data.types}
            rows={data.rows}
            rowsShown={9}
          />
        )
      ) : (
        !failure && <p class="empty">nothing yet: {waitingFor(panel)}</p>
      )}
      {data && data.cut > 0 && <p class="note">{count(data.cut)} more rows are not shown</p>}
      {data?.note && <p class="note">{visible(data.note)}</p>}
    </article>
  );
}

function Drawn({ panel, data }: { panel: Panel; data: PanelData }): JSX.Element {
  const Kind = KINDS[panel.kind as keyof typeof KINDS];
  if (!Kind) return <Rows label={panel.title} columns={data.columns} types={data.types} rows={data.rows} />;
  return <Kind panel={panel} data={data} />;
}

function Note({ data }: { data: PanelData | null }): JSX.Element | null {
  if (!data) return null;
  const window = data.window;
  return (
    <span class="note num">
      {window && `${clockTime(window[0]).slice(0, 8)} to ${clockTime(window[1]).slice(0, 8)} · `}
      {data.time !== null && <When time={data.time} />}
    </span>
  );
}

function waitingFor(panel: Panel): JSX.Element {
  const query = panel.query ?? panel.table;
  return (
    <span>
      the query has not given a row to this panel. <a href={href("query", query)}>Look at the query</a>
    </span>
  );
}
