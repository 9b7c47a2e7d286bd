// What commands write for terminals: colours become names, everything else that steers a terminal is left out. Pure.

const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
// The sixteen colours of terminals, to which all others are brought: each is readable on the page, light and dark.
const PALETTE = [
  [0, 0, 0],
  [205, 0, 0],
  [0, 205, 0],
  [205, 205, 0],
  [0, 0, 238],
  [205, 0, 205],
  [0, 205, 205],
  [229, 229, 229],
  [127, 127, 127],
  [255, 0, 0],
  [0, 255, 0],
  [255, 255, 0],
  [92, 92, 255],
  [255, 0, 255],
  [0, 255, 255],
  [255, 255, 255],
];

export const PLAIN = Object.freeze({
  colour: "",
  background: "",
  bold: false,
  faint: false,
  italic: false,
  underline: false,
  inverse: false,
  struck: false,
});

// Sequences: CSI ... final, OSC ... BEL or ST (and DCS, PM, APC), ESC and one or two more. An unfinished one at the end
// of a line is left out as well.
const SEQUENCE =
  // eslint-disable-next-line no-control-regex
  /(?:\x1b\[|\x9b)([0-?]*)([ -/]*)([@-~]|$)|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)|\x1b[ -/]*[0-~]?|[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;

/**
 * A line of output as spans of one style: `{spans: [{text, style}], style}`, with the style in which the next line
 * begins.
 */
export function spans_of(line, begin = PLAIN) {
  const spans = [];
  let style = begin;
  let from = 0;
  const push = (text) => {
    if (text) {
      const last = spans.at(-1);
      if (last && last.style === style) {
        last.text += text;
      } else {
        spans.push({ text, style });
      }
    }
  };
  for (const found of line.matchAll(SEQUENCE)) {
    push(line.slice(from, found.index));
    from = found.index + found[0].length;
    if (found[3] === "m" && !found[2]) {
      style = styled(style, found[1]);
    }
  }
  push(line.slice(from));
  return { spans, style };
}

/** The text alone. */
export function plain_text(line) {
  return line.replace(SEQUENCE, "");
}

function styled(style, parameters) {
  const codes = parameters.split(/[;:]/).map((code) => (code === "" ? 0 : Number(code)));
  let made = { ...style };
  for (let i = 0; i < codes.length; i += 1) {
    const code = codes[i];
    if (code === 0) {
      made = { ...PLAIN };
    } else if (code === 1) {
      made.bold = true;
    } else if (code === 2) {
      made.faint = true;
    } else if (code === 3) {
      made.italic = true;
    } else if (code === 4) {
      made.underline = true;
    } else if (code === 7) {
      made.inverse = true;
    } else if (code === 9) {
      made.struck = true;
    } else if (code === 22) {
      made.bold = false;
      made.faint = false;
    } else if (code === 23) {
      made.italic = false;
    } else if (code === 24) {
      made.underline = false;
    } else if (code === 27) {
      made.inverse = false;
    } else if (code === 29) {
      made.struck = false;
    } else if (code >= 30 && code <= 37) {
      made.colour = NAMES[code - 30];
    } else if (code >= 90 && code <= 97) {
      made.colour = `bright-${NAMES[code - 90]}`;
    } else if (code === 39) {
      made.colour = "";
    } else if (code >= 40 && code <= 47) {
      made.background = NAMES[code - 40];
    } else if (code >= 100 && code <= 107) {
      made.background = `bright-${NAMES[code - 100]}`;
    } else if (code === 49) {
      made.background = "";
    } else if (code === 38 || code === 48) {
      const [name, used] = extended(codes.slice(i + 1));
      i += used;
      if (name) {
        made[code === 38 ? "colour" : "background"] = name;
      }
    }
  }
  return Object.keys(PLAIN).every((key) => made[key] === PLAIN[key]) ? PLAIN : made;
}

/** `5;N` or `2;R;G;B`: the nearest of the sixteen, and how many codes that took. */
function extended(codes) {
  if (codes[0] === 5) {
    return [name_of(rgb_of(codes[1] ?? 0)), 2];
  }
  if (codes[0] === 2) {
    return [name_of([codes[1] ?? 0, codes[2] ?? 0, codes[3] ?? 0]), 4];
  }
  return ["", 1];
}

function rgb_of(index) {
  if (index < 16) {
    return PALETTE[index];
  }
  if (index >= 232) {
    const grey = 8 + 10 * (index - 232);
    return [grey, grey, grey];
  }
  const level = (number) => (number === 0 ? 0 : 55 + 40 * number);
  const cube = index - 16;
  return [level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6)];
}

function name_of(rgb) {
  let best = 0;
  let least = Infinity;
  PALETTE.forEach((colour, i) => {
    const away = colour.reduce((sum, each, k) => sum + (each - rgb[k]) ** 2, 0);
    if (away < least) {
      least = away;
      best = i;
    }
  });
  return best < 8 ? NAMES[best] : `bright-${NAMES[best - 8]}`;
}
