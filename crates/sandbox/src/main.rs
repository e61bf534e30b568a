//! Serves a cluster on loopback: `belayer-sandbox [PORT] [KUBECONFIG] [alone]`; `alone` leaves the companions out.

use std::net::SocketAddr;
use std::process::ExitCode;

use belayer_sandbox::Sandbox;
use belayer_sandbox::companions::Companions;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("belayer-sandbox: {error}");
            ExitCode::from(2)
        }
    }
}

async fn serve() -> std::io::Result<()> {
    let mut args = std::env::args().skip(1);
    let port = match args.next() {
        None => 0,
        Some(text) => text.parse().map_err(|_| {
            std::io::Error::other("the first argument is a port, zero for a free one")
        })?,
    };
    let path = args
        .next()
        .unwrap_or_else(|| "sandbox.kubeconfig".to_owned());
    let companions = match args.next().as_deref() {
        Some("alone") => Companions::none(),
        _ => Companions::all(),
    };
    let sandbox = Sandbox::builder().companions(companions).build();
    let listener = sandbox
        .listen(SocketAddr::from(([127, 0, 0, 1], port)))
        .await?;
    std::fs::write(&path, listener.kubeconfig())?;
    println!("{}\nexport KUBECONFIG={path}", listener.url());
    tokio::signal::ctrl_c().await
}
