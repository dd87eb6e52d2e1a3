/** The page with `?room=`: explains what joining means, asks, and shows what this machine does for the room. */

import { batch, useComputed, useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { describe } from '../../../src/errors.ts';
import type { Status } from '../../../src/extensions/rooms/index.ts';
import { plural, short } from '../../../src/ui/format.ts';
import { adapter } from '../../state/notices.ts';
import { type AskedRoom, roomUrl } from '../../state/address/room.ts';
import './room.css';

type Stage = 'asking' | 'connecting' | 'working' | 'leaving' | 'left' | 'over';

const HEARD: Record<Stage, string> = {
  asking: '',
  connecting: 'Connecting to the room.',
  working: 'Working for the room.',
  leaving: 'Leaving the room.',
  left: 'This machine has left the room.',
  over: 'The run of the room has ended.',
};

const LOST = 'Connection lost. Reconnecting...';

const problemOf = (address: string): string | undefined => {
  try {
    roomUrl(address);
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
};

/** The panel of a page that is a worker of a room. */
export function RoomPanel({ asked }: { asked: AskedRoom }) {
  const unusable = problemOf(asked.address);
  if (unusable !== undefined)
    return (
      <div class="room">
        <h2>A room of machines</h2>
        <p class="notice error">{unusable}</p>
        <Alone>Open the page without the room</Alone>
      </div>
    );
  return <Room {...asked} host={new URL(asked.address).host} />;
}

function Room({ address, code, host }: AskedRoom & { host: string }) {
  const stage = useSignal<Stage>('asking');
  const status = useSignal<Status | undefined>(undefined);
  const tries = useSignal(0);
  const isCut = useSignal(false);
  const problem = useSignal<string | undefined>(undefined);
  const given = useSignal(code);
  const leaving = useRef<AbortController>(undefined);
  const title = useRef<HTMLHeadingElement>(null);
  const isLost = stage.value === 'working' && isCut.value;
  const isQuiet = useComputed(() => ['asking', 'left', 'over'].includes(stage.value));
  useEffect(() => {
    if (stage.value !== 'asking') title.current?.focus(); // the focused button was removed
  }, [isQuiet.value]);

  const join = async () => {
    leaving.current = new AbortController();
    const { signal } = leaving.current;
    batch(() => {
      [stage.value, status.value, tries.value, problem.value] = ['connecting', undefined, 0, undefined];
      isCut.value = false;
    });
    try {
      const { workForRoom } = await import('../../engine/roomWorker.ts');
      status.value = await workForRoom({
        ...{ address, code: given.value.trim(), signal },
        onTry: () => tries.value++,
        onNet: (isThere) => (isCut.value = !isThere),
        onStatus(now) {
          status.value = now;
          if (stage.value === 'connecting') stage.value = 'working';
        },
      });
    } catch (error) {
      if (!signal.aborted) problem.value = describe(error);
    } finally {
      stage.value = signal.aborted || problem.value !== undefined ? 'left' : 'over';
    }
  };
  const leave = () => {
    stage.value = 'leaving';
    leaving.current?.abort();
  };
  useEffect(() => {
    const leaveWithTab = () => {
      if (!isQuiet.value) leave();
    };
    addEventListener('pagehide', leaveWithTab);
    return () => removeEventListener('pagehide', leaveWithTab);
  }, []);

  return (
    <div class="room">
      <h2 ref={title} tabIndex={-1}>
        {stage.value === 'asking' ? `Join the room at ${host}?` : `The room at ${host}`}
      </h2>
      {stage.value === 'asking' ? (
        <Question host={host} />
      ) : (
        <Doing stage={stage.value} status={status.value} tries={tries.value} />
      )}
      <p class={problem.value !== undefined ? 'notice error' : isLost ? 'notice warning' : 'heard'} role="status">
        {problem.value ?? (isLost ? LOST : HEARD[stage.value])}
      </p>
      {isQuiet.value ? (
        <form
          class="room-form"
          onSubmit={(event) => {
            event.preventDefault();
            void join();
          }}
        >
          {(code === '' || problem.value !== undefined) && (
            <label class="field">
              Join code
              <input
                type="password"
                autocomplete="off"
                required
                value={given.value}
                onInput={(event) => (given.value = event.currentTarget.value)}
              />
            </label>
          )}
          <div class="choices">
            <button type="submit" class="primary" disabled={!adapter.value}>
              {stage.value === 'asking' ? 'Join' : 'Join again'}
            </button>
            <Alone>{stage.value === 'asking' ? 'Cancel' : 'Open the page without the room'}</Alone>
          </div>
        </form>
      ) : (
        <div class="choices">
          <button type="button" aria-disabled={stage.value === 'leaving'} onClick={leave}>
            {stage.value === 'leaving' ? 'Leaving' : 'Leave'}
          </button>
        </div>
      )}
    </div>
  );
}

function Question({ host }: { host: string }) {
  return (
    <>
      <p>
        In a room, one computer trains a language model and other computers lend it their GPUs. This link asks you to
        lend yours. Nothing has been downloaded from {host} yet. If you join:
      </p>
      <ul>
        <li>Your GPU generates answers with the room's model. The room trains on them.</li>
        <li>
          The problems, the model and its weights after each step come from {host}. No program of the room runs here.
        </li>
        <li>
          Your answers, their number and speed, and your GPU's name are sent to {host}. No files and no runs are sent.
          Like any server, {host} sees your IP address.
        </li>
        <li>You can leave at any time. Unfinished work goes to other computers.</li>
      </ul>
      <p class="note">Keep this tab visible: browsers slow down hidden tabs.</p>
    </>
  );
}

function Doing({ stage, status, tries }: { stage: Stage; status: Status | undefined; tries: number }) {
  const tiles = [
    ['Status', nowText(stage, status?.groups.length ?? 0)],
    ['Tries sent', String(tries)],
    ['Tokens per second', status ? short(status.tokensPerS) : '\u2013'],
    ['Weights of step', status ? String(status.version) : '\u2013'],
  ];
  return (
    <dl class="status">
      {tiles.map(([label, value]) => (
        <div class="tile" key={label}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function nowText(stage: Stage, groups: number): string {
  if (stage === 'connecting') return 'Connecting';
  if (stage === 'leaving') return 'Leaving';
  if (stage === 'left') return 'Not in the room';
  if (stage === 'over') return 'The run has ended';
  if (groups === 0) return 'Waiting for problems';
  return `Working on ${plural(groups, 'problem')}`;
}

/** A link that opens the page again without the room. This page cannot connect to any other server. */
function Alone({ children }: { children: string }) {
  const open = () => {
    const url = new URL(location.href);
    url.searchParams.delete('room');
    location.assign(url);
  };
  return (
    <button type="button" onClick={open}>
      {children}
    </button>
  );
}
