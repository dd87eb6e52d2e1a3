/** Tabs for reward, loss and tool as code, and for settings that change during a run. */

import { signal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import { CodeTab } from './codeTab.tsx';
import { LiveSettingsTab } from './liveSettings.tsx';

const TABS = { reward: 'Reward', loss: 'Loss', tool: 'Tool', settings: 'Settings' } as const;
type Tab = keyof typeof TABS;

const shown = signal<Tab>('reward');

/** The opened editor of rules, with its tabs. */
export function Panel() {
  const tabs = useRef<HTMLDivElement>(null);
  const names = Object.keys(TABS) as Tab[];
  const onKeyDown = (event: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const next = (names.indexOf(shown.value) + by + names.length) % names.length;
    shown.value = names[next];
    tabs.current?.querySelectorAll('button')[next].focus();
  };
  return (
    <>
      <div class="tabs" role="tablist" aria-label="Rules" ref={tabs} onKeyDown={onKeyDown}>
        {names.map((name) => (
          <button
            key={name}
            type="button"
            role="tab"
            id={`rules-tab-${name}`}
            aria-selected={shown.value === name}
            aria-controls="rules-tab"
            tabIndex={shown.value === name ? 0 : -1}
            onClick={() => void (shown.value = name)}
          >
            {TABS[name]}
          </button>
        ))}
      </div>
      <div id="rules-tab" role="tabpanel" aria-labelledby={`rules-tab-${shown.value}`}>
        {shown.value === 'settings' ? <LiveSettingsTab /> : <CodeTab key={shown.value} kind={shown.value} />}
      </div>
    </>
  );
}
