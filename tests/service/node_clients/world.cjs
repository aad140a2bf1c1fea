// The planted world of the tests, driven by one client; prints what was earned in the last fifth as JSON.
// Arguments: folder with the installed clients, name of the client, address of the service, token, model.
const { createRequire } = require("module");
const [folder, name, url, token, model] = process.argv.slice(2);
const load = createRequire(folder + "/package.json");

const TIMES = ["morning", "noon", "evening"];
const ACTIONS = ["News", "Sport", "Film", "Music"];
const actions = ACTIONS.map((id) => ({ id, features: [{ kind: id }] }));

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

const CLIENTS = {
  async first() {
    const { PersonalizerClient } = load("@azure/cognitiveservices-personalizer");
    const { ApiKeyCredentials } = load("@azure/ms-rest-js");
    const key = new ApiKeyCredentials({ inHeader: { "Ocp-Apim-Subscription-Key": token, "x-model": model } });
    const client = new PersonalizerClient(key, url);
    const earned = await learned(async (time) => {
      const told = await client.rank({ actions, contextFeatures: [{ time }] });
      return [told.rewardActionId, (value) => client.events.reward(told.eventId, { value })];
    });
    const told = await client.rank({ actions, eventId: "js/1", excludedActions: ["News"], deferActivation: true });
    expect(told.eventId === "js/1" && told.ranking[0].probability === 0, "an excluded action");
    await client.events.activate("js/1");
    await client.events.reward("js/1", { value: 1 });
    await client.events.activate("event_id_returned_by_rank");
    await client.events.reward("event_id_returned_by_rank", { value: 1 });
    const refused = await client.rank({ actions: [] }).catch((error) => error);
    expect(refused.statusCode === 400 && refused.body.error.code === "InvalidRankRequest", "the body of an error");
    return earned;
  },

  async second() {
    const module = load("@azure-rest/ai-personalizer");
    const { AzureKeyCredential } = load("@azure/core-auth");
    const client = module.default(url, new AzureKeyCredential(token), { allowInsecureConnection: true });
    const good = (response, status) => {
      expect(response.status === status, `${response.request.url}: ${JSON.stringify(response.body)}`);
      return response.body;
    };
    const call = (...path) => client.path(...path);
    const earned = await learned(async (time) => {
      const response = await call("/rank").post({ body: { actions, contextFeatures: [{ time }] } });
      expect(!module.isUnexpected(response), "what the client calls unexpected");
      const event = call("/events/{eventId}/reward", response.body.eventId);
      return [response.body.rewardActionId, async (value) => good(await event.post({ body: { value } }), "204")];
    });
    const slots = [{ id: "top", baselineAction: "Film" }, { id: "side", baselineAction: "News" }];
    const told = good(await call("/multislot/rank").post({ body: { actions, slots } }), "201");
    expect(told.slots.length === 2 && told.slots[0].rewardActionId !== told.slots[1].rewardActionId, "two slots");
    const body = { reward: [{ slotId: "top", value: 1 }] };
    good(await call("/multislot/events/{eventId}/reward", told.eventId).post({ body }), "204");
    good(await call("/multislot/events/{eventId}/activate", told.eventId).post({}), "204");
    for (const kind of ["events", "multislot/events"])
      good(await call(`/${kind}/{eventId}/activate`, "event_id_returned_by_rank").post({}), "204");
    const rules = {
      rewardAggregation: "average", modelExportFrequency: "PT180S", defaultReward: 1, rewardWaitTime: "PT4H",
      explorationPercentage: 0.3, logRetentionDays: 100, learningMode: "Online",
    };
    for (const answer of [
      good(await call("/configurations/service").put({ body: rules }), "200"),
      good(await call("/configurations/service").get(), "200"),
    ])
      for (const name in rules) expect(answer[name] === rules[name], name);
    const policy = { name: "app1", arguments: "--cb_explore_adf --quadratic GT --cb_type ips --epsilon 0.2" };
    expect(good(await call("/configurations/policy").put({ body: policy }), "200").arguments === policy.arguments, "PUT");
    expect(good(await call("/configurations/policy").get(), "200").arguments === policy.arguments, "GET");
    const start = "--cb_explore_adf --epsilon 0.2 --power_t 0 -l 0.001 --cb_type mtr -q ::";
    expect(good(await call("/configurations/policy").delete(), "200").arguments === start, "the default settings");
    const span = { startTime: new Date("2020-01-01"), endTime: new Date("2100-01-01") };
    const job = { name: "mine", ...span, enableOfflineExperimentation: true, policies: [policy] };
    const evaluation = good(await call("/evaluations").post({ body: job }), "201");
    const shown = good(await call("/evaluations/{evaluationId}", evaluation.id).get(), "200");
    expect(shown.status === "completed", "the status of an evaluation");
    expect(shown.policyResults.find((result) => result.policySource === "Online"), "the running policy");
    for (const { name, summary, totalSummary } of shown.policyResults)
      for (const part of [...summary, totalSummary])
        for (const number of ["averageReward", "confidenceInterval", "nonZeroProbability", "sumOfSquares"])
          expect(typeof part[number] === "number", `${number} of ${name}`);
    expect(shown.policyResults.some(({ name }) => name === shown.optimalPolicy), "the name of the optimal policy");
    expect(good(await call("/evaluations").get(), "200").length === 1, "a list");
    const chosen = { evaluationId: evaluation.id, policyName: "linucb" };
    good(await call("/configurations/applyFromEvaluation").post({ body: chosen }), "204");
    good(await call("/evaluations/{evaluationId}", evaluation.id).delete(), "204");
    good(await call("/model/properties").get(), "200");
    const stream = await call("/model").get().asNodeStream();
    expect(stream.status === "200", "the model");
    const parts = [];
    for await (const part of stream.body) parts.push(part);
    good(await call("/model").delete(), "204");
    good(await call("/model").put({ body: Buffer.concat(parts), contentType: "application/octet-stream" }), "204");
    for (const kind of ["interactions", "observations"])
      good(await call(`/logs/${kind}`).post({ body: Buffer.from("x"), contentType: "application/octet-stream" }), "204");
    expect(good(await call("/logs/properties").get(), "200").dateRange.from, "logs");
    good(await call("/logs").delete(), "204");
    expect(good(await call("/logs/properties").get(), "200").dateRange === undefined, "no logs");
    return earned;
  },

  async openfeature() {
    const { OpenFeature } = load("@openfeature/server-sdk");
    const { OFREPProvider } = load("@openfeature/ofrep-provider");
    const headers = [["Authorization", `Bearer ${token}`]];
    await OpenFeature.setProviderAndWait(new OFREPProvider({ baseUrl: url, headers }));
    const client = OpenFeature.getClient();
    const earned = await learned(async (time) => {
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
    return earned;
  },
};

CLIENTS[name]()
  .then((earned) => console.log(JSON.stringify({ earned })))
  .catch((error) => {
    console.error(error);
    process.exit(1);
  });
