// The session that opens the interface. It came once, in the document that the link opened, and is kept in the storage of this
// origin, which has a port: cookies have none, so a browser sends ours to every server on 127.0.0.1.
const NAME = "trimaran.session";
const tag = document.querySelector<HTMLMetaElement>(`meta[name="trimaran-session"]`);
const given = tag?.content ?? "";

if (tag) {
  tag.remove();
  try {
    localStorage.setItem(NAME, given);
  } catch {
    // storage is forbidden: the session lasts until the reload
  }
  history.replaceState(null, "", `/${location.hash}`); // the token was used
}

/** As it is now: a newer link may have been opened in another tab. */
export function session(): string {
  try {
    return localStorage.getItem(NAME) ?? given;
  } catch {
    return given;
  }
}
