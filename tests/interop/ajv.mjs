// Schemas under Ajv, as different clients set it up, run by .tools/node: ajv.mjs FILE.
//
// FILE holds {"schemas": [{"name", "schema", "values", "kinds"}], "patterns": [...]}. Prints a JSON list of complaints:
// a schema that does not compile, a value that is refused, a warning, a pattern that is none.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(new URL("../../.tools/node/node_modules/.", import.meta.url));
const { default: Ajv } = require("ajv");
const { default: Ajv2020 } = require("ajv/dist/2020");
const { default: addFormats } = require("ajv-formats");

const kinds = {
  "TypeScript SDK 1.x": (logger) =>
    addFormats(new Ajv({ strict: false, validateFormats: true, validateSchema: false, allErrors: true, logger })),
  "plain Ajv": (logger) => new Ajv({ logger }),
  "strict Ajv": (logger) => new Ajv({ strict: true, logger }),
  "strict Ajv 2020": (logger) => addFormats(new Ajv2020({ strict: true, logger })),
};

const complaints = [];
const { schemas, patterns } = JSON.parse(readFileSync(process.argv[2], "utf8"));
for (const item of schemas) {
  for (const kind of item.kinds ?? Object.keys(kinds)) {
    const complain = (...words) => complaints.push(`${item.name}, ${kind}: ${words.join(" ")}`);
    try {
      const validate = kinds[kind]({ log: complain, warn: complain, error: complain }).compile(item.schema);
      for (const value of item.values) {
        if (!validate(value)) complain(JSON.stringify(value), JSON.stringify(validate.errors));
      }
    } catch (error) {
      complain(error.message);
    }
  }
}
for (const pattern of patterns) {
  try {
    new RegExp(pattern, "u");
  } catch (error) {
    complaints.push(error.message);
  }
}
console.log(JSON.stringify(complaints));
