/** Helpers that create and find elements. */

type Child = Node | string;

/** Creates an element with a class and children. A text among the children is never parsed as HTML. */
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

/** Returns the element of the page with this id. Throws if it is missing, which would be a bug in webgrpo. */
export function byId(id: string): HTMLElement {
  const element = document.getElementById(id);
  if (!element) throw new Error(`The page has no element "${id}".`);
  return element;
}

/** Sets an element's text only if it differs, because setting it causes a layout. */
export function setText(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** Creates an SVG element. As in `el`, a text among the children is never parsed as HTML. */
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

/** Creates a section that opens when its summary line is clicked. */
export function folded(summary: string, ...children: Child[]): HTMLDetailsElement {
  return el('details', '', el('summary', '', summary), ...children);
}

/** Wraps content that can be wider than a phone's screen. The content then scrolls on its own, also by keyboard. */
export function scrolling(label: string, content: Node): HTMLElement {
  const place = el('div', 'wide', content);
  place.tabIndex = 0;
  place.role = 'group';
  place.ariaLabel = label;
  return place;
}

/** Creates a table from rows of cells. The first row is the header. */
export function table([header, ...rows]: readonly string[][], className = ''): HTMLTableElement {
  const row = (cells: string[], tag: 'th' | 'td') => el('tr', '', ...cells.map((cell) => el(tag, '', cell)));
  const body = el('tbody', '', ...rows.map((cells) => row(cells, 'td')));
  return el('table', `cells ${className}`, el('thead', '', row(header, 'th')), body);
}
