// Before the first paint, so that a dark page never flashes white.
(() => {
  let choice = null;
  try {
    choice = localStorage.getItem("trimaran.theme");
  } catch {
    // storage is forbidden: follow the system
  }
  if (choice === "dark" || choice === "light") document.documentElement.dataset.theme = choice;
})();
