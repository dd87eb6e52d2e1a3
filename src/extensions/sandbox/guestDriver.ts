/**
 * Code of webgrpo that runs inside QuickJS next to a task module. It runs before the module, stores its own references to built-in
 * functions, and converts calls from JSON and results to JSON. A module that changes a prototype breaks only its own results.
 */
export const GUEST_DRIVER = `(prelude, most) => {
  const { parse, stringify } = JSON;
  const { hasOwn, keys, freeze, getPrototypeOf: prototypeOf } = Object;
  const { isArray } = Array;
  const { isFinite } = Number;
  const [NewMap, NewError, NewTypeError, ToNumber, ToString] = [Map, Error, TypeError, Number, String];
  const { apply } = Reflect;
  const [get, set, drop, size, entriesOf] = [
    NewMap.prototype.get, NewMap.prototype.set, NewMap.prototype.delete,
    Object.getOwnPropertyDescriptor(NewMap.prototype, 'size').get, NewMap.prototype.keys,
  ];
  const nextOf = new NewMap().keys().__proto__.next;
  const imul = Math.imul;
  const floor = Math.floor;
  const restart = prelude(0);
  delete globalThis.SharedArrayBuffer;
  const silent = () => {};
  globalThis.console = { log: silent, info: silent, warn: silent, error: silent, debug: silent };
  const RELEASED_STATES = 2048;

  const tooLong = (length) => {
    const error = new NewError('it has ' + length + ' characters as JSON; at most ' + most + ' may cross');
    resultErrors = error;
    return error;
  };
  /** Error about the result of a call that ran without an error itself. */
  let resultErrors;
  /** Throws for a tool's output that JSON cannot represent, like readToolOutput outside the sandbox. */
  const expectWritable = (holder, key, v) => {
    if (v === undefined && key !== '' && !isArray(holder)) return;
    const where = key === '' ? '' : ' under "' + key + '"';
    if (v === undefined) throw new NewTypeError('undefined' + where);
    if (isFunction(v) || typeof v === 'symbol') throw new NewTypeError('a ' + typeof v + where);
    if (typeof v !== 'object' || v === null || isArray(v)) return;
    const prototype = prototypeOf(v);
    if (prototype !== null && prototypeOf(prototype) !== null)
      throw new NewTypeError('an instance of ' + (isFunction(v.constructor) ? v.constructor.name : 'a class') + where);
  };
  const encode = (value, isOutput) => {
    let text;
    try {
      text = stringify(value === undefined && !isOutput ? null : value, function (key, v) {
        if (isOutput) expectWritable(this, key, v);
        return typeof v === 'number' && !isFinite(v) ? { $number: '' + v } : v;
      });
    } catch (error) {
      resultErrors = error;
      throw error;
    }
    if (text === undefined) throw (resultErrors = new NewTypeError('it is a function or a symbol, not data'));
    if (text.length > most) throw tooLong(text.length);
    return text;
  };
  const decode = (text) => parse(text, (_, v) => {
    if (typeof v !== 'object' || v === null || !hasOwn(v, '$number')) return v;
    return typeof v.$number === 'string' ? ToNumber(v.$number) : v;
  });

  let task;
  let tools = [];
  const states = new NewMap();
  const released = new NewMap();
  let nextState;
  const stateOf = (id) => {
    const held = apply(get, states, [id]) ?? apply(get, released, [id]);
    if (held === undefined) throw new NewError('the state of this sample is gone: the sandbox was started anew');
    return held.state;
  };
  const keep = (state) => {
    const id = nextState++;
    apply(set, states, [id, { state }]);
    return id;
  };
  const rngOf = (seed) => {
    let at = seed | 0;
    const uniform = () => {
      at = (at + 0x6d2b79f5) | 0;
      let t = imul(at ^ (at >>> 15), 1 | at);
      t = (t + imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
    const int = (low, high) => low + floor(uniform() * (high - low + 1));
    return { uniform, int, pick: (items) => items[int(0, items.length - 1)] };
  };
  const signal = freeze({ aborted: false, throwIfAborted() {}, addEventListener() {}, removeEventListener() {} });
  const METHODS = ['create', 'save', 'restore', 'calcReward', 'release'];
  const TOOL_FIELDS = ['name', 'description', 'parameters', 'timeoutMs', 'retries', 'maxResponseLength', 'truncateSide'];
  const TASK_FIELDS = ['name', 'trainSize', 'tokenizer'];
  const REFUSED_FIELDS = ['environments', 'ask'];
  const fieldsOf = (given, names) => {
    const fields = {};
    for (let i = 0; i < names.length; i++) if (given[names[i]] !== undefined) fields[names[i]] = given[names[i]];
    return fields;
  };
  const isFunction = (value) => typeof value === 'function';
  const methodsOf = (given, names) => {
    const found = [];
    for (let i = 0; i < names.length; i++) if (isFunction(given[names[i]])) found[found.length] = names[i];
    return found;
  };
  const CALLS = {
    train: (index, seed) => task.train(index, seed),
    heldOut: (count) => task.heldOut(count),
    reward: (sample, handles) => {
      if (handles) {
        sample.toolStates = {};
        for (let i = 0; i < handles.length; i++) sample.toolStates[handles[i][0]] = stateOf(handles[i][1]);
      }
      return task.reward(sample);
    },
    observe: async (problem, rewards) => {
      await task.observe(problem, rewards);
      return isFunction(task.state) ? task.state() : null;
    },
    state: () => task.state(),
    restore: (state) => { task.restore(state); },
    run: (input) => task.run(input),
    demonstrate: (problem, seed, errorRate) => task.demonstrate(problem, rngOf(seed), errorRate),
  };
  const TOOL_CALLS = {
    'tool.execute': (tool, args, context, id) =>
      tool.execute(args, { ...context, state: id === null ? undefined : stateOf(id), signal }),
    'tool.create': async (tool, context) => keep(await tool.create(context)),
    'tool.save': (tool, id) => tool.save(stateOf(id)),
    'tool.restore': async (tool, saved, context) => keep(await tool.restore(saved, context)),
    'tool.calcReward': (tool, id) => tool.calcReward(stateOf(id)),
    'tool.release': async (tool, id) => {
      const state = stateOf(id);
      apply(set, released, [id, { state }]);
      apply(drop, states, [id]);
      if (apply(size, released, []) > RELEASED_STATES)
        apply(drop, released, [apply(nextOf, apply(entriesOf, released, []), []).value]);
      if (isFunction(tool.release)) await tool.release(state);
    },
  };

  return {
    async load(exports, optionsText, firstState) {
      nextState = firstState;
      const given = exports.default !== undefined ? exports.default : exports.task;
      if (given === undefined) throw (resultErrors = new NewTypeError('it has neither a default export nor an export named task'));
      task = isFunction(given) ? await given(decode(optionsText)) : given;
      if (typeof task !== 'object' || task === null)
        throw (resultErrors = new NewTypeError('what it exports is no task, nor a function that gives one'));
      for (let i = 0; i < REFUSED_FIELDS.length; i++)
        if (task[REFUSED_FIELDS[i]] !== undefined)
          throw (resultErrors = new NewTypeError('it has "' + REFUSED_FIELDS[i] + '", which only a file outside the sandbox (without task.isolated) can have'));
      tools = task.tools === undefined ? [] : task.tools;
      if (!isArray(tools)) throw (resultErrors = new NewTypeError('its tools are no list'));
      const described = [];
      for (let i = 0; i < tools.length; i++)
        described[i] = { ...fieldsOf(tools[i], TOOL_FIELDS), methods: methodsOf(tools[i], ['execute', ...METHODS]) };
      return encode({
        ...fieldsOf(task, TASK_FIELDS),
        methods: methodsOf(task, ['train', 'heldOut', 'reward', 'observe', 'state', 'restore', 'demonstrate']),
        tools: described,
      });
    },
    async call(name, argsText, seed) {
      resultErrors = undefined;
      restart(seed);
      const args = decode(argsText);
      if (hasOwn(CALLS, name)) return encode(await apply(CALLS[name], undefined, args), name === 'run');
      const tool = tools[args[0]];
      return encode(await apply(TOOL_CALLS[name], undefined, [tool, ...args[1]]), name === 'tool.execute');
    },
    describe(error) {
      const isError = typeof error === 'object' && error !== null;
      const read = (key) => {
        try {
          const value = isError ? error[key] : undefined;
          return value === undefined ? '' : ToString(value);
        } catch { return ''; }
      };
      const name = read('name') || 'Error';
      let message = 'an error without a readable message';
      const said = read('message');
      const kind = error !== undefined && error === resultErrors ? 'result' : 'threw';
      try {
        if (said !== '') message = kind === 'result' ? said : name + ': ' + said;
        else if (!(isError && 'message' in error)) message = ToString(error);
      } catch {}
      return stringify({ error: { kind, message: message.slice(0, 1000), stack: read('stack').slice(0, 4000) } });
    },
  };
}`;
