//! Serves a cluster on loopback and writes a kubeconfig: `cargo run --example serve -- PORT KUBECONFIG`.

use std::net::SocketAddr;

use belayer_sandbox::Sandbox;
use belayer_sandbox::companions::Companions;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let port = args.next().and_then(|p| p.parse().ok()).unwrap_or(0);
    let path = args.next().unwrap_or_else(|| "sandbox.kubeconfig".to_owned());
    let companions = match args.next().as_deref() {
        Some("alone") => Companions::none(),
        _ => Companions::all(),
    };
    let sandbox = Sandbox::builder().companions(companions).build();
    let listener = sandbox.listen(SocketAddr::from(([127, 0, 0, 1], port))).await?;
    std::fs::write(&path, listener.kubeconfig())?;
    println!("{}  export KUBECONFIG={path}", listener.url());
    tokio::signal::ctrl_c().await
}
