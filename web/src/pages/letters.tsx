// The letters of one group, each with its bytes as text and as hexadecimal numbers.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { address, ask } from "../api";
import { bytes, plural } from "../format";
import { Choose } from "../parts/choose";
import { copyText } from "../parts/copy";
import { Icon } from "../parts/icon";
import { When } from "../parts/when";
import { cut, fromBase64, hexLines, pretty, visible } from "../text";
import type { DeadGroup } from "../wire/types";
import { RedriveButton } from "./redrive";

interface Letter {
  topic?: string;
  partition?: number;
  offset?: number;
  file?: string;
  timestamp?: number;
  reason: string;
  key: string | null;
  value: string | null;
  text?: string;
  headers: [string, string | null][];
  cut?: boolean;
  attempts?: number;
  redriven?: boolean;
  /** Where the letter lies. */
  place?: string;
}

const MOST = 50;
const FORMS = ["text", "hex"] as const;

export function Letters({ group }: { group: DeadGroup }): JSX.Element {
  const letters = useSignal<Letter[] | null>(null);
  const trouble = useSignal<string | null>(null);
  const form = useSignal<(typeof FORMS)[number]>("text");
  const query = { source: group.source, topic: group.topic, reason: group.reason };
  const read = (): void => {
    ask<Letter[] | { letters: Letter[] }>(address("dead", { ...query, max: MOST, all: 1 })).then(
      (found) => {
        const all = Array.isArray(found) ? found : found.letters;
        letters.value = all.sort((a, b) => (b.timestamp ?? 0) - (a.timestamp ?? 0));
      },
      (error: Error) => {
        trouble.value = error.message;
      },
    );
  };
  // biome-ignore lint/correctness/useExhaustiveDependencies: the group is the key of this component
  useEffect(read, []);
  return (
    <section class="card letters" aria-label="Letters">
      <div class="tools">
        <h2>{cut(group.reason, 160)}</h2>
        <span class="gap" />
        <Choose
          label="Bytes as"
          choices={FORMS}
          value={form.value}
          onChoose={(one) => {
            form.value = one;
          }}
        />
        <RedriveButton group={group} onDone={read} />
        <a class="button" href={address("dead/export", query)} download>
          <Icon name="save" /> Export these
        </a>
      </div>
      <p class="note">
        <code>millrace dead</code> lists, shows, exports and redrives the same letters in the terminal
      </p>
      {trouble.value && <p class="trouble">N/A, because {visible(trouble.value)}</p>}
      {!letters.value && !trouble.value && <p class="empty">reading …</p>}
      <ol class="records" tabIndex={0} aria-label="Dead letters, newest first">
        {letters.value?.map((letter) => (
          <OneLetter
            key={letter.place ?? placeOf(letter)}
            letter={letter}
            form={form.value}
            group={group}
            onDone={read}
          />
        ))}
      </ol>
    </section>
  );
}

function placeOf(letter: Letter): string {
  return letter.topic === undefined ? (letter.file ?? "–") : `${letter.topic}[${letter.partition}]@${letter.offset}`;
}

function OneLetter({
  letter,
  form,
  group,
  onDone,
}: {
  letter: Letter;
  form: "text" | "hex";
  group: DeadGroup;
  onDone: () => void;
}): JSX.Element {
  const data = letter.value === null ? null : fromBase64(letter.value);
  const text = data && (letter.text ?? new TextDecoder().decode(data));
  return (
    <li class="letter">
      <div class="line">
        <code>{placeOf(letter)}</code>
        {letter.timestamp !== undefined && <When time={letter.timestamp} both />}
        <span class="note">{data ? bytes(data.length) : "no value"}</span>
        {letter.cut && <span class="tag">cut</span>}
        {letter.redriven && <span class="tag">sent again</span>}
        {(letter.attempts ?? 1) > 1 && <span class="tag">{plural(letter.attempts!, "attempt")}</span>}
        <span class="gap" />
        {text !== null && (
          <button
            type="button"
            class="plain"
            aria-label={`Copy ${placeOf(letter)}`}
            onClick={() => void copyText(text, "the record")}
          >
            <Icon name="copy" />
          </button>
        )}
        {letter.place !== undefined && !letter.redriven && (
          <RedriveButton group={group} letter={{ place: letter.place, record: placeOf(letter) }} onDone={onDone} />
        )}
      </div>
      <p class="reason">{cut(letter.reason, 2_000)}</p>
      {data === null ? (
        <p class="na">null</p>
      ) : (
        <pre class="code" tabIndex={0}>
          {form === "hex" ? hexLines(data) : cut(pretty(text!), 8_000)}
        </pre>
      )}
      {letter.key !== null && <p class="note">key {cut(new TextDecoder().decode(fromBase64(letter.key)), 200)}</p>}
    </li>
  );
}
