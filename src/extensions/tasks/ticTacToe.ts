/**
 * tic-tac-toe: the model plays X and answers with the number of a free cell, and a scripted opponent replies. The opponent's random moves
 * are seeded by problem and board, so all samples of a group play against the same opponent. Held-out games have other opponents.
 */

import { InputError } from '../../errors.ts';
import { checkOptions } from './checkOptions.ts';
import type { Message, Problem } from '../../tasks/problem.ts';
import { keyedRng } from '../../tasks/random.ts';
import { splitTask } from './split.ts';
import type { SyncTask } from '../../tasks/task.ts';
import { defineEnvironment } from '../../tasks/environments/environment.ts';
import { environmentTask } from '../../tasks/environments/environmentTask.ts';

export const TIC_TAC_TOE_OPTIONS = {
  /** Fraction of the opponent's moves that are perfect (minimax). The others are random. */
  strength: 0.25,
  /** Fraction of the games in which the model moves first. */
  modelStarts: 0.5,
  /** Number of illegal moves that a game allows. One more ends the game. */
  illegalMoves: 0,
};

/** Reward of the turn that ends a game, by result, and of each illegal move. */
const REWARDS = { won: 1, drawn: 0.5, lost: 0, illegal: -0.1 };

type Mark = 'X' | 'O';
/** Nine cells, row by row: 'X', 'O' or '.' for a free cell. */
export type Board = string;
type Result = 'won' | 'drawn' | 'lost';

interface Game {
  board: Board;
  result?: Result;
  illegal: number;
}

export interface TicTacToeProblem extends Problem {
  /** Seed of the opponent's random moves. */
  opponent: number;
  modelStarts: boolean;
}

/** Creates the tic-tac-toe task. Throws InputError if an option is out of its range. */
export function ticTacToeTask(options: Partial<typeof TIC_TAC_TOE_OPTIONS> = {}): SyncTask {
  const o = { ...TIC_TAC_TOE_OPTIONS, ...options };
  checkOptions('tic-tac-toe', o, { illegalMoves: [0, 100] });
  for (const name of ['strength', 'modelStarts'] as const)
    if (!(o[name] >= 0 && o[name] <= 1))
      throw new InputError(`tic-tac-toe: option ${name} is ${o[name]}; allowed: a share, from 0 to 1. Change it.`);
  const { train, heldOut } = splitTask<TicTacToeProblem>('tic-tac-toe', (rng) => {
    const opponent = rng.int(0, 2 ** 30);
    const messages: Message[] = [{ role: 'user', content: 'Play X.' }];
    const modelStarts = rng.uniform() < o.modelStarts;
    const template = modelStarts ? 'first' : 'second';
    return { problem: { messages, answer: 'win', template, opponent, modelStarts }, key: String(opponent) };
  });

  const reset = (problem: TicTacToeProblem): Game => ({
    board: problem.modelStarts ? EMPTY : reply(EMPTY, problem),
    illegal: 0,
  });
  const reply = (board: Board, { opponent }: TicTacToeProblem): Board => {
    const rng = keyedRng('tic-tac-toe-opponent', opponent, board);
    return place(board, rng.pick(rng.uniform() < o.strength ? bestMoves(board, 'O') : freeCells(board)), 'O');
  };
  const play = (game: Game, text: string, problem: TicTacToeProblem) => {
    const cell = Number(text.trim()) - 1;
    if (!freeCells(game.board).includes(cell)) {
      const done = ++game.illegal > o.illegalMoves;
      return { text: `Not a free cell.\n${shownBoard(game.board)}`, reward: REWARDS.illegal, done };
    }
    game.board = place(game.board, cell, 'X');
    if (!resultOf(game.board)) game.board = reply(game.board, problem);
    const result = resultOf(game.board);
    if (!result) return shownBoard(game.board);
    game.result = result;
    return { text: `${shownBoard(game.board)}\nYou have ${ENDS[result]}.`, reward: REWARDS[result], done: true };
  };

  const environment = defineEnvironment({
    name: 'tic-tac-toe',
    maxResponseLength: 200,
    reset: (problem) => {
      const state = reset(problem as TicTacToeProblem);
      return { state, observation: shownBoard(state.board) };
    },
    step: (text, { state, problem }) => play(state, text, problem as TicTacToeProblem),
    reward: ({ result, illegal }) => ({
      score: 0,
      acc: result === 'won' ? 1 : 0,
      extra: { drawn: result === 'drawn' ? 1 : 0, lost: result === 'lost' ? 1 : 0, illegal },
    }),
    save: (state) => state,
    restore: (saved) => saved as Game,
  });
  return environmentTask({
    name: 'tic-tac-toe',
    environments: [environment],
    train,
    heldOut,
    /** Returns a demonstration with perfect moves. With probability `errorRate`, a move is random instead. */
    demonstrate(problem, rng, errorRate) {
      const game = reset(problem as TicTacToeProblem);
      const messages: Message[] = [{ role: 'user', content: shownBoard(game.board) }];
      while (!game.result) {
        const cells = rng.uniform() < errorRate ? freeCells(game.board) : bestMoves(game.board, 'X');
        const content = String(rng.pick(cells) + 1);
        const said = play(game, content, problem as TicTacToeProblem);
        messages.push({ role: 'assistant', content });
        if (typeof said === 'string') messages.push({ role: 'user', content: said });
      }
      return messages;
    },
    tokenizer: { vocabSize: 263, wordShare: 0 },
  });
}

const EMPTY: Board = '.........';
const ENDS = { won: 'won', drawn: 'a draw', lost: 'lost' };
const LINES = ['012', '345', '678', '036', '147', '258', '048', '246'].map((line) => [...line].map(Number));

const place = (board: Board, cell: number, mark: Mark): Board => board.slice(0, cell) + mark + board.slice(cell + 1);

/** Returns the indices of free cells. */
export const freeCells = (board: Board): number[] => [...board].flatMap((mark, cell) => (mark === '.' ? [cell] : []));

/** Renders the board as three rows. A free cell shows its number. */
const shownBoard = (board: Board): string =>
  [...board]
    .map((mark, cell) => (mark === '.' ? String(cell + 1) : mark) + (cell % 3 === 2 ? '\n' : ''))
    .join('')
    .trimEnd();

/** Returns the result for X; undefined while the game is running. */
export function resultOf(board: Board): Result | undefined {
  const line = LINES.find(([a, b, c]) => board[a] !== '.' && board[a] === board[b] && board[a] === board[c]);
  if (line) return board[line[0]] === 'X' ? 'won' : 'lost';
  return board.includes('.') ? undefined : 'drawn';
}

/** Returns all cells that are best for `mark`, whose turn it is. */
export function bestMoves(board: Board, mark: Mark): number[] {
  const sign = mark === 'X' ? 1 : -1;
  const values = freeCells(board).map((cell) => sign * valueOf(place(board, cell, mark), mark === 'X' ? 'O' : 'X'));
  const best = Math.max(...values);
  return freeCells(board).filter((_, i) => values[i] === best);
}

const known = new Map<string, number>();

/** Returns the minimax value when `mark` is to move: 1 = X wins, 0 = draw, -1 = O wins. */
function valueOf(board: Board, mark: Mark): number {
  const key = board + mark;
  const stored = known.get(key);
  if (stored !== undefined) return stored;
  const value = computedValue(board, mark);
  known.set(key, value);
  return value;
}

function computedValue(board: Board, mark: Mark): number {
  const result = resultOf(board);
  if (result) return { won: 1, drawn: 0, lost: -1 }[result];
  const values = freeCells(board).map((cell) => valueOf(place(board, cell, mark), mark === 'X' ? 'O' : 'X'));
  return mark === 'X' ? Math.max(...values) : Math.min(...values);
}
