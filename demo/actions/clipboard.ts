/** Writes to the clipboard. Returns false if the browser forbids it, or has no clipboard, as on a page over plain http. */
export async function copied(write: (clipboard: Clipboard) => Promise<void>): Promise<boolean> {
  try {
    await write(navigator.clipboard);
    return true;
  } catch {
    return false;
  }
}
