// The one WebSocket: hello, subscribe, acknowledge, resume, and coming back after it broke.
import { signal } from "@preact/signals";
import {
  apply,
  flush,
  forgetIdle,
  forgetTroubles,
  isShown,
  mistrust,
  mistrustAll,
  trouble,
  versions,
} from "./channels";
import { doubtClock, heardTime, serverNow } from "./clock";
import { asideVersions, discard, paused, pausedAt, release, setAside, tellWaiting } from "./pause";
import type { Message } from "./types";
import { onWanted, wanted } from "./wanted";

const FIRST_RETRY = 250;
const LONGEST_RETRY = 5_000;
const MISSED_BEATS = 3;
/** A connection that has been silent for so many beats is given up. */
const DEAD_BEATS = 6;

export type Link = "connecting" | "live" | "stale" | "away";

export const link = signal<Link>("connecting");
export const refused = signal<string | null>(null);
export const retryAt = signal(0);
/** When the newest frame was made, by the server's clock. */
export const frameTime = signal(0);
export const lost = signal({ coalesced: 0, dropped: 0 });
/** How often the connection was made: 2 and more mean that it was lost in between. */
export const connections = signal(0);

let socket: WebSocket | null = null;
let epoch: string | null = null;
let heartbeat = 2_000;
let heardAt = 0;
let attempts = 0;
let timer = 0;
let unacknowledged: number | null = null;
let newestFrame = 0;
let totals = { coalesced: 0, dropped: 0 };

export function connect(): void {
  onWanted(subscribe);
  open();
  addEventListener("online", retryNow);
  document.addEventListener("visibilitychange", () => !document.hidden && link.peek() === "away" && retryNow());
}

function open(): void {
  clearTimeout(timer);
  const address = new URL("ws", document.baseURI);
  address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
  address.hash = "";
  const opened = new WebSocket(address);
  socket = opened;
  opened.onmessage = (event) => opened === socket && hear(JSON.parse(event.data as string) as Message);
  opened.onclose = () => opened === socket && closed();
}

export function retryNow(): void {
  if (socket && socket.readyState <= WebSocket.OPEN) return;
  open();
}

function closed(): void {
  socket = null;
  unacknowledged = null;
  link.value = "away";
  attempts += 1;
  const backoff = Math.min(LONGEST_RETRY, FIRST_RETRY * 1.6 ** (attempts - 1));
  const wait = backoff * (0.8 + 0.4 * Math.random());
  retryAt.value = performance.now() + wait;
  timer = window.setTimeout(open, wait);
  if (attempts >= 2) void askWhy();
}

/** A browser does not tell why a WebSocket was refused; the plain interface does. */
async function askWhy(): Promise<void> {
  try {
    const answer = await fetch(new URL("api/state", document.baseURI));
    refused.value =
      answer.status === 401 || answer.status === 403
        ? "this page needs its token: open the address that Millrace printed, with ?token= in it"
        : null;
  } catch {
    refused.value = null;
  }
}

function hear(message: Message): void {
  heardAt = performance.now();
  if (message.type === "hello") greet(message);
  else if (message.type === "frame") take(message);
  else if (message.type === "beat") heardTime(message.time);
  else trouble(message.channel ?? "", message.message);
  if (link.peek() === "stale") link.value = "live";
}

function greet(hello: Extract<Message, { type: "hello" }>): void {
  doubtClock();
  heardTime(hello.time);
  heartbeat = hello.heartbeat;
  if (epoch !== hello.epoch) {
    mistrustAll();
    discard();
  }
  epoch = hello.epoch;
  forgetTroubles([]);
  attempts = 0;
  refused.value = null;
  connections.value += 1;
  link.value = "live";
  subscribe();
}

function take(frame: Extract<Message, { type: "frame" }>): void {
  heardTime(frame.time);
  newestFrame = frame.time;
  unacknowledged = frame.seq;
  totals = { coalesced: totals.coalesced + frame.coalesced, dropped: totals.dropped + frame.dropped };
  const gaps: string[] = [];
  for (const [name, delta] of Object.entries(frame.channels)) {
    if (paused.peek() && isShown(name)) setAside(name, delta);
    else if (!apply(name, delta)) {
      mistrust(name);
      gaps.push(name);
    }
  }
  if (gaps.length) askAnew(gaps);
}

/** A channel that stays subscribed goes on from what was sent; one that was left and comes back begins anew. */
function askAnew(gaps: readonly string[]): void {
  const others = [...wanted()].filter((name) => !gaps.includes(name));
  sendWanted(others, {});
  subscribe();
}

function subscribe(): void {
  const names = wanted();
  forgetIdle(names);
  sendWanted([...names], { ...versions(names), ...pick(asideVersions(), names) });
}

/** The server tells the troubles of what is subscribed, and when they end; of the rest nobody knows. */
function sendWanted(channels: readonly string[], have: Record<string, number>): void {
  forgetTroubles(channels);
  send({ type: "subscribe", channels, have: { epoch, versions: have } });
}

function pick(all: Record<string, number>, names: ReadonlySet<string>): Record<string, number> {
  return Object.fromEntries(Object.entries(all).filter(([name]) => names.has(name)));
}

function send(message: object): void {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
}

/** Once a frame of the screen: show what came, then say that there is room for more. */
export function settle(): void {
  flush();
  if (paused.peek()) tellWaiting();
  if (unacknowledged !== null) {
    send({ type: "ack", seq: unacknowledged });
    unacknowledged = null;
    frameTime.value = newestFrame;
    const { coalesced, dropped } = lost.peek();
    if (coalesced !== totals.coalesced || dropped !== totals.dropped) lost.value = totals;
  }
}

/** Once a second: notice silence. */
export function listenForSilence(): void {
  if (link.peek() === "away" || !socket) return;
  const silent = performance.now() - heardAt;
  if (link.peek() === "live" && silent > MISSED_BEATS * heartbeat) link.value = "stale";
  if (link.peek() === "stale" && silent > DEAD_BEATS * heartbeat) {
    const silentOne = socket;
    socket = null;
    silentOne.close();
    closed();
  }
}

export function pause(on: boolean): void {
  if (on === paused.peek()) return;
  pausedAt.value = serverNow();
  paused.value = on;
  if (on) return;
  const gaps = release();
  if (gaps.length) askAnew(gaps);
}
