// How large what is drawn on is, without asking the browser to lay everything out for each frame.

export interface Size {
  wide: number;
  high: number;
}

const known = new WeakMap<Element, Size>();

const observer = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries)
    known.set(target, { wide: Math.round(contentRect.width), high: Math.round(contentRect.height) });
});

export function sizeOf(element: Element): Size {
  return known.get(element) ?? { wide: element.clientWidth, high: element.clientHeight };
}

export function measure(element: Element): () => void {
  observer.observe(element);
  return () => observer.unobserve(element);
}
