/** Small helpers to build and find elements. */

type Child = Node | string;

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
  if (!element) throw new Error(`The page has no element "${id}".`);
  return element;
}

/** Sets text only where it differs, so that nothing is laid out for nothing. */
export function setText(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** An SVG element; text is always text, as in `el`. */
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Record<string, string | number>,
  ...children: Child[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** Content under a line that opens it. */
export function folded(summary: string, ...children: Child[]): HTMLDetailsElement {
  return el('details', '', el('summary', '', summary), ...children);
}

/** What may be wider than a phone scrolls in itself, by keyboard too. */
export function scrolling(label: string, content: Node): HTMLElement {
  const place = el('div', 'wide', content);
  place.tabIndex = 0;
  place.role = 'group';
  place.ariaLabel = label;
  return place;
}

/** Rows of cells, the header first. */
export function table([header, ...rows]: readonly string[][], className = ''): HTMLTableElement {
  const row = (cells: string[], tag: 'th' | 'td') => el('tr', '', ...cells.map((cell) => el(tag, '', cell)));
  const body = el('tbody', '', ...rows.map((cells) => row(cells, 'td')));
  return el('table', `cells ${className}`, el('thead', '', row(header, 'th')), body);
}
