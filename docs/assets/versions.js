// The version of these pages, after the site's name. It leads to the list of all versions.
const base = new URL(`${JSON.parse(document.getElementById("__config").textContent).base}/`, location)
const link = document.createElement("a")
link.href = new URL("../index.html", base)
link.textContent = base.pathname.split("/").at(-2)
link.title = "All versions"
link.style.marginLeft = "0.5em"
document.querySelector(".md-header__topic .md-ellipsis").append(link)
