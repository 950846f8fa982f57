// Where the parts of the circuit stand: layers upwards, tokens across. Heads of END stand side by side
// in END's column, MLPs of END on its stream at the right, and C above it.
const ArithLensLayout = (() => {
  "use strict";
  const { isMlp } = ArithLensElements;
  const EMBEDDINGS = "embeddings", END = "END", PORT = 0.68;
  const SIZE = { head: 48, box: 30, mlp: 52, wide: 40, right: 80, token: 24, top: 44, foot: 44, left: 24, stream: 132, gap: 6, clear: 4,
    row: [36, 48], column: [26, 104], tall: 520 };
  const key = (name, role) => `${name}@${role}`;
  const layerOf = name => name === EMBEDDINGS ? -1 : +(isMlp(name) ? name.slice(4) : name.split(".")[0]);
  const clamp = (x, [least, most]) => Math.max(least, Math.min(most, x));

  // nodes: [{ name, role, extra, drawn }]; roles: the columns from left to right, END last; width: of the picture.
  // Extra parts take what is free in the rows of their layer; one that is drawn and finds no room gets a row more, so that
  // no box covers another.
  function layout(nodes, roles, width) {
    const total = width - SIZE.left - SIZE.stream, n = roles.length - 1;
    const column = n ? Math.max(15, Math.min(clamp(total * 0.5 / n, SIZE.column), (total - 2 * (SIZE.head + SIZE.gap)) / n)) : 0;
    const columns = new Map(roles.map((role, place) => [role, { left: SIZE.left + place * column, width: role === END ? total - n * column : column }]));
    const cells = new Map(), layers = new Map();
    const parts = nodes.filter(node => node.name !== EMBEDDINGS && !(node.role === END && isMlp(node.name)));
    parts.sort((a, b) => layerOf(a.name) - layerOf(b.name) || isMlp(a.name) - isMlp(b.name) || a.name.localeCompare(b.name, "en", { numeric: true }));
    for (const node of nodes) if (node.name !== EMBEDDINGS) layers.set(layerOf(node.name), 1);
    // In columns other than END, the parts of one layer stand in the middle.
    const capacityOf = (node, room) => {
      const most = Math.max(1, Math.floor(room / (SIZE.head + SIZE.gap)));
      return node.role === END ? most : Math.min(most, count(node));
    };
    const taken = new Map(), seats = new Set(), count = node => parts.filter(one => one.role === node.role && layerOf(one.name) === layerOf(node.name)).length;
    for (const node of parts.filter(one => !one.extra)) {
      const layer = layerOf(node.name), { width: room } = columns.get(node.role);
      const capacity = capacityOf(node, room);
      const cell = `${node.role} ${layer}`, place = cells.get(cell) ?? 0;
      // Heads of END take the next slot each, so that those of near layers do not stand above one another.
      const slot = node.role === END ? (taken.get(END) ?? 0) % capacity : place % capacity;
      cells.set(cell, place + 1);
      taken.set(node.role, (taken.get(node.role) ?? 0) + 1);
      Object.assign(node, { slot, capacity, under: Math.floor(place / capacity) });
      layers.set(layer, Math.max(layers.get(layer), node.under + 1));
      seats.add(`${cell} ${node.slot} ${node.under}`);
    }
    for (const node of nodes.filter(one => one.extra && parts.includes(one))) {  // in their own order: the strongest first
      const layer = layerOf(node.name), capacity = capacityOf(node, columns.get(node.role).width), cell = `${node.role} ${layer}`;
      const free = [...Array(capacity * layers.get(layer)).keys()].map(place => [place % capacity, Math.floor(place / capacity)])
        .find(([slot, under]) => !seats.has(`${cell} ${slot} ${under}`));
      if (!free) {
        if (!node.drawn) continue;  // it would need a row of its own
        layers.set(layer, layers.get(layer) + 1);
      }
      const [slot, under] = free ?? [0, layers.get(layer) - 1];
      seats.add(`${cell} ${slot} ${under}`);
      Object.assign(node, { slot, capacity, under });
    }
    const order = [...layers.keys()].sort((a, b) => a - b);
    const rows = order.reduce((sum, layer) => sum + layers.get(layer), 0);
    const row = clamp(SIZE.tall / Math.max(rows, 1), SIZE.row);
    const height = SIZE.top + row * rows + SIZE.foot, stream = width - SIZE.right;
    const bottoms = new Map();
    let below = 0;
    for (const layer of order) { bottoms.set(layer, height - SIZE.foot - row * below); below += layers.get(layer); }
    const places = new Map();
    for (const { name, role, slot, capacity, under } of nodes) {
      if (slot === undefined && parts.some(one => one.name === name && one.role === role)) continue;
      const { left, width: room } = columns.get(role), layer = layerOf(name);
      if (name === EMBEDDINGS) {
        places.set(key(name, role), { x: left + room / 2, y: height - SIZE.foot / 2, w: room - 2, h: SIZE.token });
      } else if (role === END && isMlp(name)) {
        places.set(key(name, role), { x: stream, y: bottoms.get(layer) - row * (layers.get(layer) - 0.5), w: SIZE.mlp, h: SIZE.box, onStream: true });
      } else if (role !== END) {  // left of the line that rises from the token
        const w = Math.min(SIZE.head - 2, room - 2 * SIZE.clear);
        places.set(key(name, role), { x: left + PORT * room - SIZE.clear - w / 2, y: bottoms.get(layer) - row * (under + 0.5), w, h: SIZE.box });
      } else {
        places.set(key(name, role), { x: left + room * (slot + 0.5) / capacity, y: bottoms.get(layer) - row * (under + 0.5),
          w: Math.min(isMlp(name) ? SIZE.mlp : SIZE.head - 4, room / capacity - 14), h: SIZE.box });
      }
    }
    return { places, columns, stream, width, height, row,
      layers: order.flatMap(layer => [...Array(layers.get(layer)).keys()].map(under => ({ layer, y: bottoms.get(layer) - row * (under + 0.5) }))),  // a line for each row of a layer
      tokens: new Map([...columns].map(([role, { left, width: room }]) => [role, { x: left + room / 2, y: height - SIZE.foot / 2, w: room - 2,
        ...role === END ? {} : { port: left + PORT * room, rise: height - SIZE.foot - row } }])) };  // up to there a token's line is straight
  }
  return { EMBEDDINGS, END, SIZE, key, layerOf, layout };
})();
