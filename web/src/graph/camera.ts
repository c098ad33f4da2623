// From where the graph is looked at: moved by dragging, zoomed by the wheel, fitted by a button.

export interface Camera {
  x: number;
  y: number;
  zoom: number;
}

const CLOSEST = 2;
const FARTHEST = 0.2;
const MARGIN = 28;

export function fitted(wide: number, high: number, inWide: number, inHigh: number): Camera {
  if (!wide || !high) return { x: 0, y: 0, zoom: 1 };
  const zoom = Math.max(FARTHEST, Math.min(1.12, (inWide - 2 * MARGIN) / wide, (inHigh - 2 * MARGIN) / high));
  return { x: (inWide - wide * zoom) / 2, y: (inHigh - high * zoom) / 2, zoom };
}

/** Zoom so that the point under the mouse stays where it is. */
export function zoomed(camera: Camera, factor: number, atX: number, atY: number): Camera {
  const zoom = Math.max(FARTHEST, Math.min(CLOSEST, camera.zoom * factor));
  const real = zoom / camera.zoom;
  return { x: atX - (atX - camera.x) * real, y: atY - (atY - camera.y) * real, zoom };
}

export function moved(camera: Camera, x: number, y: number): Camera {
  return { ...camera, x: camera.x + x, y: camera.y + y };
}
