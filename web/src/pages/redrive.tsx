// Dead letters sent again: a button, a question before it is done, how far it is, and what became of them.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { address, ask, pipeline, Refused } from "../api";
import { count, plural } from "../format";
import { Icon } from "../parts/icon";
import { toast } from "../parts/toasts";
import { cut, visible } from "../text";
import { slot } from "../wire/channels";
import type { DeadGroup, Redriven } from "../wire/types";
import { useChannels } from "../wire/wanted";

interface Wanted {
  group: DeadGroup;
  /** One letter: where it lies, and the place of its record. */
  letter?: { place: string; record: string };
  onDone: () => void;
}

export function RedriveButton(wanted: Wanted): JSX.Element {
  const open = useSignal(false);
  const { group, letter } = wanted;
  const allowed = pipeline.value?.actions ?? false;
  return (
    <>
      <button
        type="button"
        class={letter ? "plain" : ""}
        disabled={!allowed || (!letter && !group.count) || !group.source}
        title={allowed ? undefined : "the run was started with --read-only"}
        aria-label={letter ? `Redrive ${letter.record}` : undefined}
        onClick={() => {
          open.value = true;
        }}
      >
        <Icon name="play" />
        {!letter && ` Redrive ${count(group.count)}`}
      </button>
      {open.value && (
        <Question
          {...wanted}
          onClose={() => {
            open.value = false;
          }}
        />
      )}
    </>
  );
}

function Question({ group, letter, onDone, onClose }: Wanted & { onClose: () => void }): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const busy = useSignal(false);
  const trouble = useSignal<string | null>(null);
  const outcome = useSignal<Redriven | null>(null);
  useLayoutEffect(() => {
    dialog.current?.showModal();
  }, []);
  const send = async (): Promise<void> => {
    busy.value = true;
    trouble.value = null;
    try {
      const told = await redrive(group, letter?.place ?? null);
      toast(`${plural(told.sent, "dead letter")} sent again`, told.failed ? "warn" : "fine");
      outcome.value = told;
      if (!told.failed) dialog.current?.close();
    } catch (error) {
      const hint = error instanceof Refused && error.hint ? ` (${error.hint})` : "";
      trouble.value = (error as Error).message + hint;
    }
    busy.value = false;
  };
  // Only then: what is read anew may have no button any more, and this question would go with it.
  const close = (): void => {
    onClose();
    if (outcome.value) onDone();
  };
  return (
    <dialog class="question" ref={dialog} aria-label="Redrive" onClose={close}>
      <h2>{letter ? `Send ${visible(letter.record)} again?` : `Send ${plural(group.count, "dead letter")} again?`}</h2>
      <p class="reason">{cut(group.reason, 200)}</p>
      <p class="note">
        {group.topic
          ? "The records go back to their topic, once, and whoever else reads it gets them again."
          : "The lines go back to their folder, once, in new files."}
      </p>
      <p class="note">
        To mend them on the way: <code>millrace dead redrive --fix FILE.py:FUNCTION</code>
      </p>
      {busy.value && <Progress />}
      {trouble.value && (
        <p class="trouble" role="alert">
          {visible(trouble.value)}
        </p>
      )}
      {outcome.value && <Failures told={outcome.value} />}
      <div class="tools">
        <span class="gap" />
        <button type="button" onClick={() => dialog.current?.close()}>
          {outcome.value ? "Close" : "Cancel"}
        </button>
        {!outcome.value && (
          <button type="button" class="strong" disabled={busy.value} onClick={() => void send()}>
            {busy.value ? "sending …" : "Send again"}
          </button>
        )}
      </div>
    </dialog>
  );
}

function Progress(): JSX.Element {
  useChannels("redrive");
  const told = slot("redrive").value.value as Redriven | null;
  return (
    <p class="note" role="status">
      {told?.state === "running" && told.sent ? `${count(told.sent)} sent so far` : "reading what is there …"}
    </p>
  );
}

function Failures({ told }: { told: Redriven }): JSX.Element {
  return (
    <div class="trouble" role="alert">
      {plural(told.failed, "letter")} could not be sent, and stay:
      <ul>
        {told.failures.map((one) => (
          <li key={one.place}>
            <code>{visible(one.place)}</code> {cut(one.why, 200)}
          </li>
        ))}
      </ul>
    </div>
  );
}

function redrive(group: DeadGroup, letter: string | null): Promise<Redriven> {
  return ask(address("dead/redrive"), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ source: group.source, topic: group.topic, reason: letter ? null : group.reason, letter }),
  });
}
