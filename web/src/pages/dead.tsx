// Dead letters: which records could not be used and why; their bytes; all of them as a file.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { address } from "../api";
import { count, plural } from "../format";
import { Icon } from "../parts/icon";
import { type Column, Table } from "../parts/table";
import { When } from "../parts/when";
import { cut, visible } from "../text";
import { slot, troubles } from "../wire/channels";
import type { DeadGroup, State } from "../wire/types";
import { useChannels } from "../wire/wanted";
import { Letters } from "./letters";

const COLUMNS: Column<DeadGroup>[] = [
  { name: "source", value: (group) => group.source, show: (group) => visible(group.source) },
  { name: "topic", value: (group) => group.topic, show: (group) => visible(group.topic ?? "–") },
  { name: "reason", wide: true, value: (group) => group.reason, show: (group) => cut(group.reason, 200) },
  { name: "letters", right: true, value: (group) => group.count, show: (group) => count(group.count) },
  { name: "redriven", right: true, value: (group) => group.redriven ?? 0, show: (group) => count(group.redriven ?? 0) },
  {
    name: "newest",
    right: true,
    value: (group) => group.newest,
    show: (group) => (group.newest === null ? "–" : <When time={group.newest} />),
  },
];

export function Dead(): JSX.Element {
  useChannels("dead");
  const groups = slot("dead").value.value as DeadGroup[] | null;
  const chosen = useSignal<string | null>(null);
  const trouble = troubles.value.dead;
  const open = groups?.find((group) => keyOf(group) === chosen.value);
  const known = (slot("state").value.value as State | null)?.figures.dead ?? 0;
  return (
    <div class="dead">
      {trouble && <p class="trouble">N/A, because {visible(trouble)}</p>}
      {!groups && !trouble && (
        <p class="empty">{known ? `reading ${plural(known, "dead letter")} …` : "looking for dead letters …"}</p>
      )}
      {groups?.length === 0 && <p class="empty fine">No dead letters: every record could be used.</p>}
      {groups && groups.length > 0 && (
        <section class="card">
          <Table
            label="dead letters"
            rows={groups}
            columns={COLUMNS}
            rowKey={keyOf}
            chosen={chosen.value}
            onOpen={(group) => {
              chosen.value = keyOf(group);
            }}
            sort="letters"
            descending
            rowsShown={open ? 6 : 16}
            extra={
              <>
                <span class="gap" />
                <a class="button" href={address("dead/export")} download>
                  <Icon name="save" /> Export all
                </a>
              </>
            }
          />
        </section>
      )}
      {open && <Letters key={keyOf(open)} group={open} />}
    </div>
  );
}

function keyOf(group: DeadGroup): string {
  return `${group.source}\n${group.topic}\n${group.reason}`;
}
