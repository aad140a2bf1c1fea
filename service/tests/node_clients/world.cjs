// The planted world of the tests, driven by OpenFeature's client; prints what was earned in the last fifth as JSON.
// Arguments: folder with the installed client, address of the service, token, model.
const { createRequire } = require("module");
const [folder, url, token, model] = process.argv.slice(2);
const load = createRequire(folder + "/package.json");

const TIMES = ["morning", "noon", "evening"];
const ACTIONS = ["News", "Sport", "Film", "Music"];

let state = 7;
function random() {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return state / 4294967296;
}

function expect(truth, what) {
  if (!truth) throw new Error(`not as expected: ${what}`);
}

async function learned(choose, rounds = 300) {
  const rewards = [];
  for (let t = 0; t < rounds; t++) {
    const time = Math.floor(random() * TIMES.length);
    const [action, report] = await choose(TIMES[time]);
    const value = random() < (action === ACTIONS[time] ? 0.8 : 0.1) ? 1 : 0;
    await report(value);
    rewards.push(value);
  }
  const last = rewards.slice(-rounds / 5);
  return last.reduce((sum, one) => sum + one, 0) / last.length;
}

async function earned() {
  const { OpenFeature } = load("@openfeature/server-sdk");
  const { OFREPProvider } = load("@openfeature/ofrep-provider");
  const headers = [["Authorization", `Bearer ${token}`]];
  await OpenFeature.setProviderAndWait(new OFREPProvider({ baseUrl: url, headers }));
  const client = OpenFeature.getClient();
  const mean = await learned(async (time) => {
    const details = await client.getStringDetails(model, "none", { targetingKey: "someone", time });
    expect(details.errorCode === undefined, JSON.stringify(details));
    const report = async (value) => {
      const body = JSON.stringify({ id: details.flagMetadata.id, value });
      const sent = { "Content-Type": "application/json", Authorization: `Bearer ${token}` };
      const told = await fetch(`${url}/v1/rewards`, { method: "POST", headers: sent, body });
      expect(told.status === 200, "a reward");
    };
    return [details.value, report];
  });
  expect((await client.getBooleanDetails("truth", true)).errorCode === undefined, "a truth value");
  expect([1, 2].includes((await client.getNumberDetails("count", 7)).value), "a number");
  const other = await client.getObjectDetails(model, { a: 1 });
  expect(other.value.a === 1 && other.errorCode === "TYPE_MISMATCH", JSON.stringify(other));
  const missing = await client.getStringDetails("no-such-flag", "otherwise");
  expect(missing.value === "otherwise" && missing.errorCode === "FLAG_NOT_FOUND", JSON.stringify(missing));
  return mean;
}

earned()
  .then((mean) => console.log(JSON.stringify({ earned: mean })))
  .catch((error) => {
    console.error(error);
    process.exit(1);
  });
