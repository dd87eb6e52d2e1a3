/**
 * search-qa: questions whose answers need two or three generated documents. The tool `search` is slow, `open` is fast, and `answer` ends
 * the sample. Training and held-out questions differ but use the same documents.
 */

import { checkOptions } from './checkOptions.ts';
import { keyedRng, type Rng } from '../../tasks/random.ts';
import { splitTask } from './split.ts';
import type { Message, Problem, SyncTask } from '../../tasks/task.ts';
import { answerTool, type Document, httpSearch, localSearch, openTool, type Search, searchTool } from './search.ts';

export const SEARCH_QA_OPTIONS = {
  people: 120,
  /** Minimum and maximum duration of a search in seconds. */
  minSearchS: 0.2,
  maxSearchS: 3,
  topK: 2,
  /** HTTP endpoint of a search service that has the documents; '' = BM25 search in this process. */
  searchUrl: '',
  searchConcurrency: 8,
};

/** Example: hops ['Kem', 'Tola'], answer 'Dor Vas': open Kem's document, then Tola's. */
interface SearchQaProblem extends Problem {
  /** Titles of the documents to open, in order. */
  hops: string[];
}

interface World {
  documents: Document[];
  people: { name: string; city: string; friend: string }[];
  cities: { name: string; mayor: string; country: string }[];
}

/** Creates the task. Loads the search library unless the options name a search service. Throws InputError if an option is invalid. */
export async function searchQaTask(options: Partial<typeof SEARCH_QA_OPTIONS> = {}): Promise<SyncTask> {
  const o = { ...SEARCH_QA_OPTIONS, ...options };
  checkOptions('search-qa', o, {
    people: [4, 1000], // the number of names of three syllables is limited
    minSearchS: [0, 3600],
    maxSearchS: [0, 3600],
    topK: [1, 100],
    searchConcurrency: [1, 1000],
  });
  const world = makeWorld(o.people);
  const local = await localSearch(world.documents);
  const search: Search =
    o.searchUrl === '' ? local : httpSearch({ url: o.searchUrl, concurrency: o.searchConcurrency });
  const latencyMs = (query: string, sampleId: string) =>
    1000 * (o.minSearchS + keyedRng('latency', query, sampleId).uniform() * (o.maxSearchS - o.minSearchS));
  const tools = [searchTool(search, { topK: o.topK, latencyMs }), openTool(world.documents), answerTool];
  const { train, heldOut } = splitTask<SearchQaProblem>('search-qa', (rng) => drawQuestion(world, rng));
  return {
    name: 'search-qa',
    train,
    heldOut,
    tools,
    reward({ toolRewards, numToolErrors }) {
      const acc = toolRewards?.['answer'] === 1 ? 1 : 0;
      const answered = toolRewards?.['answer'] === undefined ? 0 : 1;
      return { score: acc, acc, extra: { answered, toolErrors: numToolErrors } };
    },
    demonstrate: (problem, rng, errorRate) =>
      demonstrate(problem as SearchQaProblem, rng, errorRate, world, local, o.topK),
    tokenizer: { vocabSize: 640, wordShare: 0.9 },
  };
}

const SYLLABLES = ['ba', 'do', 'ke', 'li', 'mu', 'na', 'po', 'ra', 'su', 'te', 'vi', 'zo'];
const COUNTRIES = ['Arden', 'Belon', 'Corva', 'Delmar', 'Estia', 'Fenno'];

function makeWorld(peopleCount: number): World {
  const rng = keyedRng('search-qa-world');
  const names = distinctNames(peopleCount + Math.ceil(peopleCount / 3), rng);
  const [personNames, cityNames] = [names.slice(0, peopleCount), names.slice(peopleCount)];
  const cities = cityNames.map((name) => ({ name, mayor: rng.pick(personNames), country: rng.pick(COUNTRIES) }));
  const people = personNames.map((name) => ({
    name,
    city: rng.pick(cityNames),
    friend: rng.pick(personNames.filter((other) => other !== name)),
  }));
  const texts = [
    ...people.map(({ name, city, friend }) => [
      name,
      `${name} lives in ${city}. The best friend of ${name} is ${friend}.`,
    ]),
    ...cities.map(({ name, mayor, country }) => [name, `${name} is a city in ${country}. Its mayor is ${mayor}.`]),
  ];
  return { people, cities, documents: texts.map(([title, text], i) => ({ id: String(i + 1), title, text })) };
}

function distinctNames(count: number, rng: Rng): string[] {
  const names = new Set<string>();
  while (names.size < count) {
    const name = rng.pick(SYLLABLES) + rng.pick(SYLLABLES) + (names.size > 100 ? rng.pick(SYLLABLES) : '');
    names.add(name[0].toUpperCase() + name.slice(1));
  }
  return [...names];
}

function drawQuestion({ people, cities }: World, rng: Rng) {
  const person = rng.pick(people);
  const friend = people.find(({ name }) => name === person.friend)!;
  const city = cities.find(({ name }) => name === person.city)!;
  const friendsCity = cities.find(({ name }) => name === friend.city)!;
  const [template, content, answer, hops] = rng.pick([
    ['mayor', `Who is the mayor where ${person.name} lives?`, city.mayor, [person.name, city.name]],
    ['country', `In which country does ${person.name} live?`, city.country, [person.name, city.name]],
    ['friend-city', `Where does the best friend of ${person.name} live?`, friend.city, [person.name, friend.name]],
    [
      'friend-mayor',
      `Who is the mayor where the best friend of ${person.name} lives?`,
      friendsCity.mayor,
      [person.name, friend.name, friendsCity.name],
    ],
  ] as const);
  const messages: Message[] = [{ role: 'user', content }];
  return { problem: { messages, answer, template, hops: [...hops] }, key: content };
}

/**
 * Returns a demonstration: search and open for each hop, then the answer. A demonstration with a mistake answers with the title of the last
 * document.
 */
function demonstrate(
  { hops, answer }: SearchQaProblem,
  rng: Rng,
  errorRate: number,
  world: World,
  search: Search,
  topK: number,
): Message[] {
  const call = (name: string, args: object) =>
    ({ role: 'assistant', content: `<tool_call>${JSON.stringify({ name, arguments: args })}</tool_call>` }) as const;
  const messages: Message[] = hops.flatMap((title): Message[] => {
    const found = search(title, topK, new AbortController().signal) as { id: string; title: string }[];
    const { id, text } = world.documents.find((document) => document.title === title)!;
    return [
      call('search', { query: title }),
      { role: 'tool', content: found.map((hit) => `${hit.id}: ${hit.title}`).join('\n') },
      call('open', { id }),
      { role: 'tool', content: text },
    ];
  });
  const given = rng.uniform() < errorRate ? hops[hops.length - 1] : answer;
  return [
    ...messages,
    call('answer', { text: given }),
    { role: 'tool', content: 'noted' },
    { role: 'assistant', content: 'done' },
  ];
}
