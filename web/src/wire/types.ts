// What the server says: the shapes of channels and of /api/pipeline, as docs/dashboard.md has them.

export type Cell = string | number | boolean | null | Cell[] | { [name: string]: Cell };
export type Columns = Record<string, Cell[]>;
export type Why = Record<string, string>;

export type Delta =
  | { kind: "replace"; version: number; data: unknown }
  | { kind: "snapshot" | "append"; version: number; data: { columns: Columns } };

export type Message =
  | { type: "hello"; epoch: string; time: number; tick: number; heartbeat: number }
  | {
      type: "frame";
      seq: number;
      time: number;
      channels: Record<string, Delta>;
      coalesced: number;
      dropped: number;
    }
  | { type: "beat"; time: number }
  | { type: "error"; channel: string | null; message: string | null };

export type Phase = "starting" | "running" | "waiting" | "restarting" | "failed" | "stopped";

export interface Failure {
  message: string;
  why: string | null;
  hint: string | null;
  where: string | null;
}

export interface QueryState {
  name: string;
  table: string;
  phase: Phase;
  doing: string | null;
  batches: number;
  rows: number;
  late: number;
  in_rate: number | null;
  rate: number | null;
  out_rate?: number | null;
  batch_ms: number | null;
  /** Of DStreams: how long the newest batch waited, and from when it was due to its end. */
  waited_ms?: number | null;
  delay_ms?: number | null;
  busy: number | null;
  lag: number | null;
  lag_seconds: number | null;
  lag_why?: string | null;
  watermark: number | null;
  watermark_gap_ms: number | null;
  state_rows: number | null;
  state_bytes: number | null;
  sink_rows: number | null;
  since: number | null;
  /** While a backlog is read: how far in event time, and which partitions wait for others. */
  alignment?: string | null;
  silence: string | null;
  error: Failure | null;
  /** While a failure is not over: when it is started again, and why. */
  restart?: string | null;
  restarts?: number;
  why?: Why;
}

export interface Figures {
  in_rate: number | null;
  out_rate: number | null;
  lag: number | null;
  lag_seconds: number | null;
  watermark_gap_ms: number | null;
  errors: number | null;
  dead: number | null;
  late: number | null;
}

export interface State {
  time: number;
  phase: Phase;
  reasons: string[];
  figures: Figures;
  queries: QueryState[];
  edges: { from: string; to: string; rate: number | null }[];
  dead: Record<string, number>;
  process: { cpu: number | null; memory: number | null; jvm_memory: number | null; threads: number | null };
  why?: Why;
}

export interface Topic {
  name: string;
  internal: boolean;
  partitions: {
    id: number;
    leader: number | null;
    replicas: number[];
    isr: number[];
    start: number | null;
    end: number | null;
    rate: number | null;
  }[];
  groups: { group: string; state: string; lag: number | null }[];
  rate: number | null;
  bytes: number | null;
}

export interface DeadGroup {
  source: string;
  topic: string | null;
  query: string | null;
  reason: string;
  /** Open ones. */
  count: number;
  /** Those that were sent again. */
  redriven?: number;
  newest: number | null;
  sample: { partition: number; offset: number } | null;
}

/** What became of dead letters that were to be sent again. */
export interface Redriven {
  state: "running" | "done" | "failed";
  sent: number;
  already: number;
  left: number;
  failed: number;
  failures: { place: string; why: string }[];
  error: string | null;
}

export interface PanelData {
  columns: string[];
  types?: ("time" | "number" | "text" | "bool" | "other")[];
  rows: Cell[][];
  time: number | null;
  cut: number;
  /** What a panel over windows shows now. */
  window?: [number, number] | null;
  error?: Failure | string | null;
  note?: string | null;
}

export type PanelKind = "series" | "top" | "table" | "heat" | "number";

export interface Panel {
  id: string;
  table: string;
  kind: PanelKind;
  title: string;
  options: Record<string, Cell>;
  inferred: boolean;
  query?: string | null;
  error?: Failure | string | null;
}

export interface Source {
  name: string;
  connector: string;
  detail: string | null;
  file: string | null;
  line: number | null;
  watermark: string | null;
}

export interface Table {
  name: string;
  reads: string[];
  sql: string | null;
  /** Of a table that is written in Python. */
  source?: string | null;
  file: string | null;
  line: number | null;
  watermark: string | null;
}

export interface Sink {
  table: string;
  connector: string;
  detail: string | null;
  /** What it writes, by name: in a generation, the topic or folder of that. */
  to: string | null;
  mode: string | null;
  guarantee: string | null;
  query: string | null;
  file: string | null;
  line: number | null;
}

/** Topics with their partitions. */
export type Offsets = Record<string, Record<string, number>>;

export interface Generation {
  number: number;
  standing: string;
  /** Whether it is the one that `run` goes on with and that the aliases lead to. */
  current: boolean;
  outputs: string[];
  begin: Offsets;
  end: Offsets;
}

export interface Pipeline {
  name: string;
  file: string | null;
  version: string;
  /** The one that this run writes. */
  generation: number | null;
  /** All that there are, once a replay has made one. */
  generations: Generation[];
  sources: Source[];
  tables: Table[];
  sinks: Sink[];
  queries: { name: string; table: string; mode: string | null; trigger: string | null; sinks: number[] }[];
  panels: Panel[];
  memory: string[];
  topics: string[];
  settings: { name: string; value: string; why: string | null }[];
  versions: Record<string, string>;
  actions: boolean;
}
