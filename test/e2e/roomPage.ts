/** The page as a worker of a room. */

import { expect, type Locator, type Page } from '@playwright/test';

/** Opens the page as a worker of a room, and records every WebSocket that the page opens, except the development server's. */
export async function openFor(page: Page, address: string, code: string, root = '/'): Promise<string[]> {
  const sockets: string[] = [];
  page.on('websocket', (socket) => {
    if (!socket.url().includes('?token=')) sockets.push(socket.url());
  });
  await page.goto(`${root}?room=${encodeURIComponent(address)}#code=${code}`);
  await expect(page.getByRole('button', { name: 'Join', exact: true })).toBeEnabled();
  return sockets;
}

export const region = (page: Page): Locator => page.getByRole('region', { name: 'A room of machines' });
export const tile = (page: Page, name: string): Locator =>
  region(page).locator('.tile', { hasText: name }).locator('dd');
