//! What a cage costs: starting in one, being called in one, and talking to a host through its gate (SBX §12).
//!
//! Prints one line for each measure: `name TAB unit TAB bare TAB caged`. Both sides run in turns, and the median counts; what is
//! worth comparing is the ratio. The executable is all the parts at once: the launcher's hidden mode, the programs that
//! are started, and who measures.
#![allow(clippy::print_stdout, reason = "this is what it is for")]

mod hosts;
mod programs;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use portcullis_sandbox::{Conditions, Detect, Launcher, Profile, launch, stage};

const STARTS: usize = 25;
const CALLS: usize = 20_000;
const OPENINGS: usize = 5_000;
const ROUNDS: usize = 5;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match &arguments[..] {
        [mode, control] if *mode == launch::MODE => stage::main(control),
        ["nothing"] => {}
        ["echo"] => programs::echo(),
        ["open", times] => programs::open(times.parse().expect("a number")),
        ["pour", host, bytes] => programs::pour(host, bytes.parse().expect("a number")),
        ["pour-privately", host, bytes] => programs::pour_privately(host, bytes.parse().expect("a number")),
        _ => measure(),
    }
}

fn measure() {
    let launcher = Launcher::own().expect("this executable can be opened");
    starts(&launcher);
    calls(&launcher);
    openings(&launcher);
    for (name, private) in [("tunnel", false), ("substitution", true)] {
        let (mut bare, mut caged) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            bare.push(hosts::through_a_relay());
            caged.push(hosts::through_the_gate(&launcher, private));
        }
        report(name, "MiB/s", bare, caged);
    }
}

pub(crate) fn own() -> PathBuf {
    std::env::current_exe().and_then(|path| path.canonicalize()).expect("we have a path")
}

pub(crate) fn program(words: &[&str]) -> Profile {
    Profile::bare(own(), words.iter().map(|word| (*word).to_owned()).collect())
}

/// S-1: until the program is executed, self-test included; and until it has ended.
fn starts(launcher: &Launcher) {
    let (mut bare, mut caged, mut bare_whole, mut caged_whole) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let profile = program(&["nothing"]);
    for _ in 0..STARTS {
        let begun = Instant::now();
        let mut child = Command::new(own()).arg("nothing").stdin(Stdio::null()).spawn().expect("it starts");
        bare.push(begun.elapsed().as_secs_f64() * 1e3);
        let _ = child.wait();
        bare_whole.push(begun.elapsed().as_secs_f64() * 1e3);
        let begun = Instant::now();
        let mut started = launcher
            .launch(&profile, Stdio::null(), Stdio::null(), Stdio::null())
            .expect("it can be confined");
        caged.push(begun.elapsed().as_secs_f64() * 1e3);
        let _ = started.child.wait();
        caged_whole.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    report("start", "ms", bare, caged);
    report("start to end", "ms", bare_whole, caged_whole);
}

/// S-2: one line in, one line out, of a process that is there already.
fn calls(launcher: &Launcher) {
    let (mut bare, mut caged) = (Vec::new(), Vec::new());
    let profile = program(&["echo"]);
    for _ in 0..ROUNDS {
        let mut command = Command::new(own());
        let child =
            command.arg("echo").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        bare.push(cpu_per_call(child));
        let started = launcher.launch(&profile, Stdio::piped(), Stdio::piped(), Stdio::null());
        let started = started.expect("it can be confined");
        let portcullis_sandbox::Caged { child, cgroup, doors, .. } = started;
        caged.push(cpu_per_call(child));
        drop((cgroup, doors));
    }
    report("call", "µs of CPU", bare, caged);
}

/// S-4: a program that opens and reads files all the time, watched as usual and watched closely.
fn openings(launcher: &Launcher) {
    let (mut usual, mut close) = (Vec::new(), Vec::new());
    let profile = program(&["open", &OPENINGS.to_string()]);
    for _ in 0..ROUNDS {
        for (detect, times) in [(Detect::Standard, &mut usual), (Detect::Full, &mut close)] {
            let conditions = Conditions { detect, ..Conditions::default() };
            let null = Stdio::null;
            let started = launcher.launch_under(&conditions, &profile, null(), null(), null());
            let mut started = started.expect("it can be confined");
            let begun = Instant::now();
            let ended = started.child.wait().expect("it ends");
            assert!(ended.success(), "{ended}");
            times.push(begun.elapsed().as_secs_f64() * 1e6 / OPENINGS as f64);
        }
    }
    report("open", "µs", usual, close);
}

/// The child's own CPU time for each line, as it counts it itself.
fn cpu_per_call(mut child: Child) -> f64 {
    let mut input = child.stdin.take().expect("piped");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let line = format!("{}\n", "x".repeat(200));
    let mut answer = String::new();
    let mut ask = |line: &str| {
        input.write_all(line.as_bytes()).expect("it reads");
        answer.clear();
        output.read_line(&mut answer).expect("it answers");
        answer.trim().to_owned()
    };
    let number = |text: String| text.parse::<f64>().expect("a number");
    let before = number(ask("cpu\n"));
    for _ in 0..CALLS {
        ask(&line);
    }
    let spent = number(ask("cpu\n")) - before;
    drop(input);
    let _ = child.wait();
    spent / 1e3 / CALLS as f64
}

fn report(name: &str, unit: &str, bare: Vec<f64>, caged: Vec<f64>) {
    println!("{name}\t{unit}\t{:.4}\t{:.4}", median(bare), median(caged));
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
