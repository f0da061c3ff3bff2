//! Makes and removes rules.

use std::io::Write;

use interception::{Command, Config, Host, Plan, iptables, nftables, routes};

use crate::ExecError;
use crate::process::Runner;
use crate::variant::{Variant, all, choose, rules};

/// Makes the rules, or removes them if the settings say so. A dry run writes the commands to `print` and runs none.
///
/// # Errors
/// A program fails, no variant of iptables works, or there are other rules that are not to be replaced. Rules that were made
/// before the error stay.
pub fn run(config: &Config, host: &Host, print: &mut dyn Write) -> Result<Plan, ExecError> {
    let plan = Plan::new(config, host)?;
    for warning in &plan.warnings {
        tracing::warn!("{warning}");
    }
    if config.skip_rule_apply {
        return Ok(plan);
    }
    let routes = if config.cleanup_only { routes::remove(config, &plan) } else { routes::add(config, &plan) };
    if config.dry_run {
        for command in dry_commands(config, &plan)?.into_iter().chain(routes) {
            write!(print, "{command}")?;
        }
        return Ok(plan);
    }
    let runner = Runner::new(config);
    match config.native_nftables {
        true => execute(&runner, &nft(config, &plan), None)?,
        false => run_iptables(&runner, config, &plan)?,
    }
    for command in &routes {
        execute(&runner, command, None)?;
    }
    Ok(plan)
}

fn nft(config: &Config, plan: &Plan) -> Command {
    if config.cleanup_only { nftables::remove() } else { nftables::apply(plan) }
}

fn run_iptables(runner: &Runner<'_>, config: &Config, plan: &Plan) -> Result<(), ExecError> {
    let mut commands = Vec::new();
    for family in &plan.families {
        let variant = choose(runner, config, *family)?;
        if config.cleanup_only {
            // The programs of a variant need not be there.
            let others = all(config).iter().filter(|other| **other != variant);
            for (of, saved) in others.chain([&variant]).map(|of| (*of, rules(runner, *family, *of).unwrap_or_default()))
            {
                commands.extend(iptables::remove(plan, *family, &saved).map(|command| (command, of)));
            }
            continue;
        }
        let saved = rules(runner, *family, variant)?;
        let command = iptables::apply(plan, *family, config, &saved)?;
        if command.is_none() {
            tracing::info!(?family, "the rules are as they should be");
        }
        commands.extend(command.map(|command| (command, variant)));
    }
    commands.iter().try_for_each(|(command, variant)| execute(runner, command, Some(*variant)))
}

fn execute(runner: &Runner<'_>, command: &Command, variant: Option<Variant>) -> Result<(), ExecError> {
    let mut arguments = command.arguments.clone();
    arguments.extend(variant.filter(|variant| variant.locks).map(|_| "--wait=30".to_owned()));
    let name = command.program.name(variant.map_or("", |variant| variant.suffix));
    match runner.run(&name, &arguments, &command.input) {
        Ok(_) => Ok(()),
        Err(ExecError::Failed { message, .. }) if command.done_already.iter().any(|part| message.contains(part)) => {
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// The commands for a namespace without rules, or, to remove them, for one that has the rules of the settings.
fn dry_commands(config: &Config, plan: &Plan) -> Result<Vec<Command>, ExecError> {
    if config.native_nftables {
        return Ok(vec![nft(config, plan)]);
    }
    let mut commands = Vec::new();
    for family in &plan.families {
        commands.extend(match config.cleanup_only {
            true => iptables::remove(plan, *family, &iptables::fresh(plan, *family)),
            false => iptables::apply(plan, *family, config, "")?,
        });
    }
    Ok(commands)
}
