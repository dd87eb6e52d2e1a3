/** Milliseconds after which the object URL is revoked: longer than any browser takes to start a download. */
const DOWNLOAD_MS = 60_000;

/** Makes the browser save a file. */
export function saveFile(name: string, content: Blob): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), DOWNLOAD_MS);
}
