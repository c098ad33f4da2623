// An error as a person wants it: what, why, what to do, where.
import type { JSX } from "preact";
import { visible } from "../text";
import type { Failure } from "../wire/types";
import { copyText } from "./copy";
import { Icon } from "./icon";

export function asFailure(error: Failure | string | null | undefined): Failure | null {
  if (!error) return null;
  return typeof error === "string" ? { message: error, why: null, hint: null, where: null } : error;
}

export function Trouble({ failure }: { failure: Failure }): JSX.Element {
  const { message, why, hint, where } = failure;
  const whole = [message, why, hint, where].filter(Boolean).join("\n");
  return (
    <section class="failure" role="alert">
      <Icon name="warn" />
      <div>
        <h3>{visible(message)}</h3>
        {why && (
          <p>
            <b>root cause</b> {visible(why)}
          </p>
        )}
        {hint && (
          <p>
            <b>what to do</b> {visible(hint)}
          </p>
        )}
        {where && (
          <p>
            <b>where</b> <code>{visible(where)}</code>
          </p>
        )}
      </div>
      <button type="button" class="plain" aria-label="Copy the error" onClick={() => void copyText(whole, "the error")}>
        <Icon name="copy" />
      </button>
    </section>
  );
}
