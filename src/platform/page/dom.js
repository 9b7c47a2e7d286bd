// What is shown as a tree of plain values, and the page brought to it step by step, so that focus, selection, scroll
// positions and open menus survive news. Texts become text nodes and nothing else: no text of a user is ever HTML.

const SVG = "http://www.w3.org/2000/svg";
const AS_PROPERTY = new Set(["value", "checked", "disabled", "hidden", "open", "indeterminate"]);

/**
 * An element as a value. Attributes: `key` names it among its siblings; `on...` are listeners; `style` is an object of
 * properties; `mount(node)` is called once with the real element, whose children are then left to it, `update(node)`
 * each time; false, null and undefined leave an attribute out.
 */
export function h(name, attributes, ...children) {
  return { name, attributes: attributes ?? {}, children: flat(children) };
}

function flat(children, into = []) {
  for (const child of children) {
    if (Array.isArray(child)) {
      flat(child, into);
    } else {
      // What is not shown keeps its place as an empty text, so that those after it stay what they are.
      const is_nothing = child === null || child === undefined || child === false;
      into.push(is_nothing ? "" : typeof child === "object" ? child : String(child));
    }
  }
  return into;
}

/** Brings the children of an element to what is given. */
export function render(parent, ...children) {
  patch_children(parent, flat(children));
}

function patch_children(parent, wanted) {
  const keyed = new Map();
  const plain = [];
  for (const node of parent.childNodes) {
    if (node.tesser_key === undefined) {
      plain.push(node);
    } else {
      keyed.set(node.tesser_key, node);
    }
  }
  let next_plain = 0;
  const nodes = wanted.map((want) => {
    const key = typeof want === "object" ? want.attributes.key : undefined;
    const node = key === undefined ? plain[next_plain++] : keyed.get(key);
    if (!node || !is_same(node, want)) {
      return make(want, parent);
    }
    patch(node, want);
    return node;
  });
  const stay = new Set(nodes);
  for (const node of [...plain, ...keyed.values()]) {
    if (!stay.has(node)) {
      node.remove();
    }
  }
  let at = parent.firstChild;
  for (const node of nodes) {
    if (node === at) {
      at = at.nextSibling;
    } else {
      parent.insertBefore(node, at);
    }
  }
}

function is_same(node, want) {
  if (typeof want === "string") {
    return node.nodeType === Node.TEXT_NODE;
  }
  return (
    node.nodeType === Node.ELEMENT_NODE && node.localName === want.name && node.tesser_key === want.attributes.key
  );
}

function make(want, parent) {
  if (typeof want === "string") {
    return document.createTextNode(want);
  }
  const is_svg = want.name === "svg" || (parent.namespaceURI === SVG && parent.localName !== "foreignObject");
  const node = is_svg ? document.createElementNS(SVG, want.name) : document.createElement(want.name);
  node.tesser_key = want.attributes.key;
  patch(node, want);
  want.attributes.mount?.(node);
  return node;
}

function patch(node, want) {
  if (typeof want === "string") {
    if (node.data !== want) {
      node.data = want;
    }
    return;
  }
  patch_attributes(node, want.attributes);
  if (!want.attributes.mount) {
    patch_children(node, want.children);
  }
  if (want.name === "select" && want.attributes.value !== undefined) {
    node.value = want.attributes.value; // again, now that it has its options
  }
  want.attributes.update?.(node);
}

function patch_attributes(node, attributes) {
  const before = node.tesser_attributes ?? {};
  for (const name of Object.keys(before)) {
    if (!(name in attributes)) {
      set_attribute(node, name, undefined, before[name]);
    }
  }
  for (const [name, value] of Object.entries(attributes)) {
    // What a person types or opens is theirs: a property is set when what it should be has changed.
    if (value !== before[name]) {
      set_attribute(node, name, value, before[name]);
    }
  }
  node.tesser_attributes = attributes;
}

function set_attribute(node, name, value, before) {
  if (name === "key" || name === "mount" || name === "update") {
    return;
  }
  if (name.startsWith("on")) {
    node[name] = value ?? null;
  } else if (name === "style") {
    for (const property of Object.keys(before ?? {})) {
      if (!(value && property in value)) {
        node.style.removeProperty(property);
      }
    }
    for (const [property, text] of Object.entries(value ?? {})) {
      node.style.setProperty(property, text);
    }
  } else if (AS_PROPERTY.has(name)) {
    node[name] = value ?? (name === "value" ? "" : false);
  } else if (value === undefined || value === null || value === false) {
    node.removeAttribute(name);
  } else {
    node.setAttribute(name, value === true ? "" : value);
  }
}
