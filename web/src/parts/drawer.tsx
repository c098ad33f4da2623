// A panel at the right that tells more about one thing; Escape closes it and gives the focus back.
import type { ComponentChildren, JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { Icon } from "./icon";

export function Drawer({
  title,
  kind,
  onClose,
  children,
  wide = false,
}: {
  title: string;
  kind: string;
  onClose: () => void;
  children: ComponentChildren;
  wide?: boolean;
}): JSX.Element {
  const drawer = useRef<HTMLElement>(null);
  useLayoutEffect(() => {
    // Before the page is painted: an Escape that comes at once is the drawer's.
    const before = document.activeElement;
    drawer.current?.focus({ preventScroll: true });
    return () => {
      if (before instanceof HTMLElement || before instanceof SVGElement) before.focus({ preventScroll: true });
    };
  }, []);
  return (
    <aside
      class={`drawer${wide ? " wide" : ""}`}
      ref={drawer}
      tabIndex={-1}
      aria-label={`${kind} ${title}`}
      onKeyDown={(event) => {
        if (event.key !== "Escape") return;
        event.stopPropagation();
        onClose();
      }}
    >
      <header>
        <div>
          <span class="kind">{kind}</span>
          <h2>{title}</h2>
        </div>
        <button type="button" class="plain" aria-label="Close" onClick={onClose}>
          <Icon name="close" />
        </button>
      </header>
      <div class="inside">{children}</div>
    </aside>
  );
}

export function Facts({ facts }: { facts: [string, ComponentChildren][] }): JSX.Element {
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
