// The living graph: nodes as buttons, edges as lines with their rates, and water moving along them.
import { useComputed, useSignal } from "@preact/signals";
import type { JSX, TargetedPointerEvent, TargetedWheelEvent } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { watch } from "../draw/loop";
import { measure } from "../draw/sizes";
import { rate as showRate } from "../format";
import { Icon } from "../parts/icon";
import { link } from "../wire/socket";
import type { Pipeline, State } from "../wire/types";
import { type Camera, fitted, moved, zoomed } from "./camera";
import { paintFlow, type Stream } from "./flow";
import { type Layout, layOut, type Run } from "./layout";
import { graphOf, rateOf } from "./model";
import { NodeCard } from "./node";
import { selected } from "./selected";
import { step } from "./steps";

export function GraphView({ pipeline, state }: { pipeline: Pipeline; state: State | null }): JSX.Element {
  const layout = useMemo(() => layOut(graphOf(pipeline)), [pipeline]);
  const stage = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const camera = useSignal<Camera>({ x: 0, y: 0, zoom: 1 });
  const byHand = useSignal(false);
  const streams = useRef<Stream[]>([]);
  streams.current = layout.runs.map((run) => ({ run, rate: moving(run, layout, state) }));
  const place = useComputed(() => {
    const { x, y, zoom } = camera.value;
    return `translate(${x}px, ${y}px) scale(${zoom})`;
  });

  const fit = (): void => {
    const { clientWidth = 0, clientHeight = 0 } = stage.current ?? {};
    byHand.value = false;
    camera.value = fitted(layout.wide, layout.high, clientWidth, clientHeight);
  };

  // biome-ignore lint/correctness/useExhaustiveDependencies: fits anew for another layout
  useEffect(() => {
    const [box, paper] = [stage.current!, canvas.current!];
    fit();
    const sizes = new ResizeObserver(() => !byHand.peek() && fit());
    sizes.observe(box);
    const unmeasured = measure(paper);
    const flow = watch(box, {
      draw: (now) => paintFlow(paper, camera.peek(), link.peek() === "live" ? streams.current : [], now),
    });
    return () => {
      sizes.disconnect();
      flow();
      unmeasured();
    };
  }, [layout]);

  const wheel = (event: TargetedWheelEvent<HTMLDivElement>): void => {
    // Without a key the wheel scrolls the page, as everywhere.
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = event.currentTarget.getBoundingClientRect();
    byHand.value = true;
    camera.value = zoomed(camera.peek(), Math.exp(-event.deltaY / 300), event.clientX - box.x, event.clientY - box.y);
  };
  const drag = (event: TargetedPointerEvent<HTMLDivElement>): void => {
    if (event.buttons !== 1 || (event.target as Element).closest("button")) return;
    event.currentTarget.setPointerCapture(event.pointerId);
    byHand.value = true;
    camera.value = moved(camera.peek(), event.movementX, event.movementY);
  };
  const zoom = (factor: number): void => {
    const { clientWidth = 0, clientHeight = 0 } = stage.current ?? {};
    byHand.value = true;
    camera.value = zoomed(camera.peek(), factor, clientWidth / 2, clientHeight / 2);
  };

  return (
    <section
      class="graph"
      ref={stage}
      aria-label="The pipeline; arrow keys go along its edges"
      onWheel={wheel}
      onPointerMove={drag}
      onKeyDown={(event) => step(event, layout)}
      onClick={(event) => {
        if (!(event.target as Element).closest("button")) selected.value = null;
      }}
    >
      <div class="world" style={{ transform: place.value, width: `${layout.wide}px`, height: `${layout.high}px` }}>
        <svg aria-hidden="true" width={layout.wide} height={layout.high}>
          {layout.runs.map((run) => (
            <path
              key={`${run.from} ${run.to}`}
              d={run.path}
              class={selected.value === run.from || selected.value === run.to ? "near" : ""}
              style={{ strokeWidth: thickness(rateOf(run, state)) }}
            />
          ))}
        </svg>
      </div>
      <canvas ref={canvas} />
      <div class="world" style={{ transform: place.value, width: `${layout.wide}px`, height: `${layout.high}px` }}>
        {layout.runs.map((run) => (
          <EdgeRate key={`${run.from} ${run.to}`} run={run} state={state} />
        ))}
        {layout.nodes.map((node) => (
          <NodeCard key={node.id} node={node} state={state} />
        ))}
      </div>
      <div class="controls">
        <button type="button" class="quiet" aria-label="Zoom in" onClick={() => zoom(1.25)}>
          <Icon name="plus" />
        </button>
        <button type="button" class="quiet" aria-label="Zoom out" onClick={() => zoom(0.8)}>
          <Icon name="minus" />
        </button>
        <button type="button" class="quiet" aria-label="Fit to view" title="Fit to view" onClick={fit}>
          <Icon name="fit" />
        </button>
      </div>
    </section>
  );
}

function EdgeRate({ run, state }: { run: Run; state: State | null }): JSX.Element | null {
  const rate = rateOf(run, state);
  if (rate === null) return null;
  return (
    <span class="rate num" style={{ left: `${run.middle.x}px`, top: `${run.middle.y}px` }}>
      {showRate(rate)}
    </span>
  );
}

function thickness(rate: number | null): string {
  return `${rate ? Math.min(7, 1.5 + Math.log10(1 + rate)) : 1.5}px`;
}

/** Between tables Spark counts nothing; rows move there when they move into the table before. */
function moving(run: Run, layout: Layout, state: State | null, depth = 0): number {
  const known = rateOf(run, state);
  if (known !== null || depth > layout.runs.length) return known ?? 0;
  const before = layout.runs.filter((one) => one.to === run.from);
  return Math.min(30, Math.max(0, ...before.map((one) => moving(one, layout, state, depth + 1))));
}
