// Where the nodes stand and how the edges run: dagre, from left to right.
import { layout as arrange, Graph as Layered } from "@dagrejs/dagre";
import type { Edge, Graph, Node } from "./model";

export const WIDE = 204;
export const HIGH = 68;

export interface Placed extends Node {
  x: number;
  y: number;
}

export interface Run extends Edge {
  path: string;
  /** Points along the path, a few pixels apart, for what moves on it. */
  points: { x: number; y: number }[];
  middle: { x: number; y: number };
}

export interface Layout {
  nodes: Placed[];
  runs: Run[];
  wide: number;
  high: number;
}

const STEP = 5;

export function layOut(graph: Graph): Layout {
  const layered = new Layered();
  layered.setGraph({ rankdir: "LR", nodesep: 30, ranksep: 110, edgesep: 24, marginx: 4, marginy: 4 });
  layered.setDefaultEdgeLabel(() => ({}));
  for (const node of graph.nodes) layered.setNode(node.id, { width: WIDE, height: HIGH });
  for (const edge of graph.edges) layered.setEdge(edge.from, edge.to, {});
  arrange(layered);
  const places = new Map(graph.nodes.map((node) => [node.id, layered.node(node.id) as { x: number; y: number }]));
  const size = layered.graph() as { width?: number; height?: number };
  return {
    nodes: graph.nodes.map((node) => ({ ...node, ...pick(places.get(node.id)!) })),
    runs: graph.edges.map((edge) => {
      const bends = (layered.edge(edge.from, edge.to) as { points?: { x: number; y: number }[] }).points ?? [];
      return run(edge, pick(places.get(edge.from)!), pick(places.get(edge.to)!), bends.slice(1, -1));
    }),
    wide: size.width ?? 0,
    high: size.height ?? 0,
  };
}

function pick({ x, y }: { x: number; y: number }): { x: number; y: number } {
  return { x, y };
}

/** A smooth line from the right side of one node to the left side of another, through the bends between them. */
function run(
  edge: Edge,
  from: { x: number; y: number },
  to: { x: number; y: number },
  bends: { x: number; y: number }[],
): Run {
  const through = bends.length > 1 ? bends : [];
  const stops = [{ x: from.x + WIDE / 2, y: from.y }, ...through, { x: to.x - WIDE / 2, y: to.y }];
  let path = `M${stops[0]!.x} ${stops[0]!.y}`;
  for (let at = 1; at < stops.length; at += 1) {
    const [a, b] = [stops[at - 1]!, stops[at]!];
    const bend = (b.x - a.x) / 2;
    path += ` C${a.x + bend} ${a.y} ${b.x - bend} ${b.y} ${b.x} ${b.y}`;
  }
  const drawn = document.createElementNS("http://www.w3.org/2000/svg", "path");
  drawn.setAttribute("d", path);
  const long = drawn.getTotalLength();
  const count = Math.max(2, Math.ceil(long / STEP));
  const points = Array.from({ length: count + 1 }, (_, at) => pick(drawn.getPointAtLength((long * at) / count)));
  return { ...edge, path, points, middle: points[Math.floor(points.length / 2)]! };
}
