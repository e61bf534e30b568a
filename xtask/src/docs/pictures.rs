//! `cargo xtask docs --pictures`: output of commands and the status page as pictures.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::terminal::{Line, cast, still};
use crate::cargo::{AS_TESTS, built, cargo, compile, root};

/// Time until a program is ready.
const READY: Duration = Duration::from_secs(60);

/// Rows of the picture of the demo.
const ROWS: usize = 26;

/// Draws all pictures that are made of running programs.
pub(super) fn draw() -> Result<()> {
    let mut build = cargo();
    build.arg("build").args(AS_TESTS);
    for program in ["belayer", "belayer-demo", "belayer-sandbox"] {
        build.args(["--bin", program]);
    }
    compile(build)?;
    let folder = root().join("target/pictures");
    fs::create_dir_all(&folder)?;
    demo()?;
    stuck(&folder)?;
    status(&folder)
}

fn demo() -> Result<()> {
    let mut demo = program("belayer-demo");
    demo.args(["--speed", "2"]);
    let (lines, succeeded) = record("cargo xtask demo --speed 2", demo)?;
    ensure!(succeeded, "the demo failed");
    let picture = cast("The demo of Belayer, as it prints its output", &lines, ROWS);
    write("start/demo.svg", picture.as_bytes())
}

fn stuck(folder: &Path) -> Result<()> {
    let cluster = Sandbox::start(folder, &["e2e/fixtures/broken-cluster.yaml"])?;
    let mut stuck = program("belayer");
    stuck.arg("stuck").env("KUBECONFIG", &cluster.kubeconfig);
    let (lines, _) = record("belayer stuck", stuck)?;
    let picture = still("The output of belayer stuck for a broken cluster", &lines);
    write("start/stuck.svg", picture.as_bytes())
}

/// The status page, in light and dark.
fn status(folder: &Path) -> Result<()> {
    let files = [
        "deploy/manifests/crd-gate.yaml",
        "deploy/manifests/crd-pod-recreation.yaml",
        "e2e/fixtures/held.yaml",
    ];
    let cluster = Sandbox::start(folder, &files)?;
    let mut run = program("belayer");
    run.args(["run", "--metrics-bind-address=0", "--debug-bind-address=0"])
        .env("KUBECONFIG", &cluster.kubeconfig)
        .env("HOSTNAME", "belayer-0")
        .stderr(Stdio::null());
    let _running = Running::start(run)?;
    let mut serve = program("belayer");
    serve
        .args(["status", "--serve", "127.0.0.1:0"])
        .env("KUBECONFIG", &cluster.kubeconfig)
        .stderr(Stdio::piped());
    let mut serving = Running::start(serve)?;
    let errors = serving.0.stderr.take().context("no standard error")?;
    let said = BufReader::new(errors).lines().next();
    let said = said.context("the status page does not start")??;
    let address = said
        .split_once("http://")
        .and_then(|(_, rest)| rest.split('/').next())
        .with_context(|| format!("no address in {said:?}"))?;
    let page = get(address, "/")?;
    // Belayer reports what waits after ten seconds.
    let data = wait(|| {
        let data = get(address, "/status.json")?;
        let read: Value = serde_json::from_str(&data)?;
        let events = read["events"].as_array();
        Ok(events
            .is_some_and(|events| !events.is_empty())
            .then_some(data))
    })?;
    let text = serde_json::to_string(&data)?.replace('<', "\\u003c");
    let shown = format!("<script>source.close(); show({text})</script></body>");
    let file = folder.join("status-page.html");
    fs::write(&file, page.replace("</body>", &shown))?;
    for (name, dark) in [("status-page", false), ("status-page-dark", true)] {
        let picture = folder.join(format!("{name}.png"));
        screenshot(&file, &picture, dark)?;
        write(&format!("troubleshooting/{name}.png"), &fs::read(picture)?)?;
    }
    Ok(())
}

fn screenshot(page: &Path, picture: &Path, dark: bool) -> Result<()> {
    let mut browser = Command::new("chromium");
    browser
        .args(["--headless=new", "--disable-gpu", "--hide-scrollbars"])
        .args(["--no-sandbox", "--window-size=1280,1300"])
        .args(dark.then_some("--force-dark-mode"))
        .arg(format!("--screenshot={}", picture.display()))
        .arg(format!("file://{}", page.display()))
        .stderr(Stdio::null());
    let status = browser.status().context("start chromium")?;
    ensure!(status.success(), "chromium made no picture");
    Ok(())
}

/// A program of the workspace, with colours.
fn program(name: &str) -> Command {
    let mut program = built("debug", name);
    program.env("CLICOLOR_FORCE", "1").stdin(Stdio::null());
    program
}

/// The output of a program below the command, and whether it succeeded.
fn record(command: &str, mut program: Command) -> Result<(Vec<Line>, bool)> {
    let began = Instant::now();
    let program = program.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut running = Running::start_ref(program)?;
    let mut lines = vec![Line {
        at: Duration::ZERO,
        text: format!("\u{1b}[2m$\u{1b}[0m {command}"),
    }];
    let output = running.0.stdout.take().context("no standard output")?;
    for text in BufReader::new(output).lines() {
        let at = began.elapsed();
        lines.push(Line { at, text: text? });
    }
    Ok((lines, running.0.wait()?.success()))
}

/// A cluster on the embedded API server.
struct Sandbox {
    kubeconfig: PathBuf,
    _running: Running,
}

impl Sandbox {
    fn start(folder: &Path, load: &[&str]) -> Result<Self> {
        let kubeconfig = folder.join("kubeconfig");
        let _ = fs::remove_file(&kubeconfig);
        let mut serve = program("belayer-sandbox");
        serve.args(["serve", "--alone", "--kubeconfig"]);
        serve.arg(&kubeconfig).stdout(Stdio::null());
        for file in load {
            serve.arg("--load").arg(root().join(file));
        }
        let running = Running::start(serve)?;
        wait(|| Ok(kubeconfig.exists().then_some(())))?;
        Ok(Self {
            kubeconfig,
            _running: running,
        })
    }
}

/// A process that ends with this value.
struct Running(Child);

impl Running {
    fn start(mut command: Command) -> Result<Self> {
        Self::start_ref(&mut command)
    }

    fn start_ref(command: &mut Command) -> Result<Self> {
        let child = command.spawn();
        child
            .map(Self)
            .with_context(|| format!("start {command:?}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks until there is an answer.
fn wait<T>(mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + READY;
    while Instant::now() < deadline {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        thread::sleep(Duration::from_millis(200));
    }
    bail!("not ready after {READY:?}")
}

/// The body of a page on the loopback.
fn get(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(READY))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
    ensure!(head.contains(" 200 "), "{path}: {head}");
    Ok(body.to_owned())
}

/// Writes a picture of the book.
fn write(name: &str, picture: &[u8]) -> Result<()> {
    let path = root().join("docs/src").join(name);
    fs::write(&path, picture).with_context(|| path.display().to_string())?;
    println!("{}", path.display());
    Ok(())
}
