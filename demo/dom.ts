/** Small helpers to build and find elements. */

export type Child = Node | string;

/** An element with a class and children; text is always text, never HTML. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className = '',
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

/** The element of the page with this id; its absence is our bug. */
export function byId(id: string): HTMLElement {
  const element = document.getElementById(id);
  if (!element) throw new Error(`index.html has no element "${id}".`);
  return element;
}

/** Sets text only where it differs, so that nothing is laid out for nothing. */
export function setText(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}
