// One topic: its partitions, who reads it, and its tail.
import type { JSX } from "preact";
import { count, rate, short } from "../format";
import { Value } from "../parts/na";
import { type Column, Table } from "../parts/table";
import { visible } from "../text";
import type { Topic } from "../wire/types";
import { Tail } from "./tail";

type Partition = Topic["partitions"][number];
type Group = Topic["groups"][number];

const PARTITIONS: Column<Partition>[] = [
  { name: "partition", value: (one) => one.id },
  {
    name: "leader",
    value: (one) => one.leader,
    show: (one) => (one.leader === null || one.leader < 0 ? <span class="bad">none</span> : one.leader),
  },
  { name: "replicas", value: (one) => one.replicas.join(", ") },
  {
    name: "in sync",
    value: (one) => one.isr.join(", "),
    show: (one) => (
      <span class={one.isr.length < one.replicas.length ? "bad" : ""}>{one.isr.join(", ") || "none"}</span>
    ),
  },
  {
    name: "first",
    right: true,
    value: (one) => one.start,
    show: (one) => <Value value={one.start} format={count} why="its leader does not answer" />,
  },
  {
    name: "end",
    right: true,
    value: (one) => one.end,
    show: (one) => <Value value={one.end} format={count} why="its leader does not answer" />,
  },
  {
    name: "rate",
    right: true,
    value: (one) => one.rate,
    show: (one) => <Value value={one.rate} format={rate} why="it needs two looks" />,
  },
];

const GROUPS: Column<Group>[] = [
  { name: "group", wide: true, value: (one) => one.group, show: (one) => visible(one.group) },
  { name: "state", value: (one) => one.state },
  {
    name: "behind",
    right: true,
    value: (one) => one.lag,
    show: (one) => <Value value={one.lag} format={short} why="the group has committed no offset" />,
  },
];

export function TopicDetail({ topic }: { topic: Topic }): JSX.Element {
  return (
    <>
      <div class="columns">
        <section class="card">
          <h2>Partitions of {visible(topic.name)}</h2>
          <Table
            label="partitions"
            rows={topic.partitions}
            columns={PARTITIONS}
            rowKey={(one) => `${one.id}`}
            filter={topic.partitions.length > 12}
            rowsShown={6}
          />
        </section>
        <section class="card">
          <h2>Groups</h2>
          <Table
            label="groups"
            rows={topic.groups}
            columns={GROUPS}
            rowKey={(one) => one.group}
            filter={topic.groups.length > 8}
            rowsShown={6}
            empty="no group reads this topic yet; a query's own group appears after its first batch"
          />
        </section>
      </div>
      <Tail topic={topic.name} />
    </>
  );
}
