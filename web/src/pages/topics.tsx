// The topics of the cluster: partitions, leaders, in-sync replicas, groups, and a live tail of one.
import type { JSX } from "preact";
import { pipeline } from "../api";
import { bytes, count, rate, short } from "../format";
import { because, Value } from "../parts/na";
import { type Column, Table } from "../parts/table";
import { go } from "../route";
import { visible } from "../text";
import { slot, troubles } from "../wire/channels";
import type { Topic } from "../wire/types";
import { useChannels } from "../wire/wanted";
import { TopicDetail } from "./topic";

const COLUMNS: Column<Topic>[] = [
  {
    name: "topic",
    wide: true,
    value: (topic) => topic.name,
    show: (topic) => (
      <>
        {visible(topic.name)}
        {pipeline.value?.topics.includes(topic.name) && <span class="tag">of this pipeline</span>}
        {topic.internal && <span class="tag">internal</span>}
      </>
    ),
  },
  { name: "partitions", right: true, value: (topic) => topic.partitions.length },
  {
    name: "in sync",
    right: true,
    value: (topic) => lacking(topic),
    show: (topic) => (lacking(topic) ? <span class="bad">{count(lacking(topic))} lack a copy</span> : "all"),
  },
  {
    name: "offsets",
    right: true,
    value: offsets,
    show: (topic) => (offsets(topic) === null ? "–" : short(offsets(topic)!)),
  },
  {
    name: "rate",
    right: true,
    value: (topic) => topic.rate,
    show: (topic) => <Value value={topic.rate} format={rate} why="it needs two looks at the topic" />,
  },
  {
    name: "size",
    right: true,
    value: (topic) => topic.bytes,
    show: (topic) => <Value value={topic.bytes} format={bytes} why={because("bytes")} />,
  },
  { name: "groups", right: true, value: (topic) => topic.groups.length },
];

export function Topics({ name }: { name: string | null }): JSX.Element {
  useChannels("topics");
  const topics = slot("topics").value.value as Topic[] | null;
  const trouble = troubles.value.topics;
  const chosen = topics?.find((topic) => topic.name === name) ?? null;
  return (
    <div class="topics">
      {trouble && <p class="trouble">N/A, because {visible(trouble)}</p>}
      {!topics && !trouble && <p class="empty">asking the cluster …</p>}
      {topics && (
        <section class="card">
          <Table
            label="topics"
            rows={topics}
            columns={COLUMNS}
            rowKey={(topic) => topic.name}
            chosen={name}
            onOpen={(topic) => go("topics", topic.name)}
            tone={(topic) => (topic.internal ? "dim" : "")}
            sort="topic"
            empty="the cluster has no topics"
            rowsShown={chosen ? 6 : 16}
          />
        </section>
      )}
      {topics && name && !chosen && <p class="empty">there is no topic called {visible(name)}</p>}
      {chosen && <TopicDetail key={chosen.name} topic={chosen} />}
    </div>
  );
}

/** Partitions with fewer copies in sync than there should be. */
function lacking(topic: Topic): number {
  return topic.partitions.filter((one) => one.isr.length < one.replicas.length || one.leader === null || one.leader < 0)
    .length;
}

/** Those that are kept: records at most, since marks of transactions have some, and compaction leaves holes. */
function offsets(topic: Topic): number | null {
  let sum = 0;
  for (const { start, end } of topic.partitions) {
    if (start === null || end === null) return null;
    sum += end - start;
  }
  return sum;
}
