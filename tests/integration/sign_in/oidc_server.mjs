// An OpenID Connect provider for tests: oidc-provider with its built-in sign-in pages.
// Arguments: port, and a file with {redirect_uris, people: {name: claims}}, which is
// read again at each request for a person.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [port, file, modules] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { Provider } = await import(
  pathToFileURL(require.resolve("oidc-provider")).href
);
const read = () => JSON.parse(readFileSync(file, "utf8"));
const issuer = `http://127.0.0.1:${port}`;
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "parley",
      client_secret: "secret-of-parley",
      redirect_uris: read().redirect_uris,
      token_endpoint_auth_method: "client_secret_post",
    },
  ],
  claims: {
    openid: ["sub"],
    email: ["email", "email_verified"],
    profile: ["name", "preferred_username", "groups"],
  },
  conformIdTokenClaims: false,
  pkce: { required: () => true },
  cookies: { keys: ["only for tests"] },
  async findAccount(_, id) {
    return { accountId: id, claims: () => ({ sub: id, ...read().people[id] }) };
  },
});
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
