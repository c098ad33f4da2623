// A whole row, each value in full as far as a browser can bear it.
import type { JSX } from "preact";
import { bytes } from "../format";
import { copyText } from "../parts/copy";
import { Drawer } from "../parts/drawer";
import { Icon } from "../parts/icon";
import { fullTime } from "../parts/when";
import { plain, pretty, visible } from "../text";
import type { Cell } from "../wire/types";
import { openedRow } from "./rows";

const MOST = 20_000;

export function RowDrawer(): JSX.Element | null {
  const opened = openedRow.value;
  if (!opened) return null;
  return (
    <Drawer
      title={opened.title}
      kind="row"
      wide
      onClose={() => {
        openedRow.value = null;
      }}
    >
      {opened.columns.map((name, at) => (
        <Field key={name} name={name} value={opened.row[at] ?? null} type={opened.types?.[at]} />
      ))}
    </Drawer>
  );
}

export function Field({ name, value, type }: { name: string; value: Cell; type?: string | undefined }): JSX.Element {
  const text = type === "time" && typeof value === "number" ? fullTime(value) : pretty(plain(value));
  const long = text.length > MOST;
  return (
    <section class="field">
      <h3>
        {visible(name)}
        {value !== null && (
          <button
            type="button"
            class="plain"
            aria-label={`Copy ${name}`}
            onClick={() => void copyText(plain(value), name)}
          >
            <Icon name="copy" />
          </button>
        )}
      </h3>
      {value === null ? (
        <p class="na">null</p>
      ) : (
        <pre class="code" tabIndex={0}>
          {visible(long ? text.slice(0, MOST) : text)}
        </pre>
      )}
      {long && (
        <p class="note">
          the first {bytes(MOST)} of {bytes(text.length)}; copy gives all of it
        </p>
      )}
    </section>
  );
}
