// The pipeline at a glance: figures, the living graph, queries, and what happened.
import type { JSX } from "preact";
import { pipeline } from "../api";
import { NodeDrawer } from "../graph/details";
import { GraphView } from "../graph/view";
import { slot } from "../wire/channels";
import type { State } from "../wire/types";
import { Events } from "./events";
import { Figures } from "./figures";
import { Queries } from "./queries";

export function Overview(): JSX.Element {
  const state = slot("state").value.value as State | null;
  const known = pipeline.value;
  const drawn = known && known.sources.length + known.tables.length > 0;
  return (
    <div class="overview">
      <Figures state={state} />
      {drawn && (
        <div class="stage">
          <GraphView pipeline={known} state={state} />
          <NodeDrawer pipeline={known} state={state} />
        </div>
      )}
      <div class="columns">
        <section class="card">
          <h2>Queries</h2>
          <Queries queries={state?.queries ?? []} />
        </section>
        <section class="card">
          <h2>What happened</h2>
          <Events />
        </section>
      </div>
    </div>
  );
}
