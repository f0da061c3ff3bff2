//! Errors of the configuration and of an injection.

/// An error in the injection configuration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// A text is not valid YAML.
    #[error("`{key}` of the injection configuration, line {line}: {message}")]
    Syntax {
        /// The key in the ConfigMap.
        key: &'static str,
        /// The line, starting at 1.
        line: u32,
        /// The problem.
        message: String,
    },
    /// A field has a wrong value.
    #[error("`{key}` of the injection configuration: {field}: {message}")]
    Field {
        /// The key in the ConfigMap.
        key: &'static str,
        /// The field.
        field: String,
        /// The problem and the remedy.
        message: String,
    },
    /// A template is not valid.
    #[error("injection template {template:?}, line {line}: {message}")]
    Template {
        /// The name of the template.
        template: String,
        /// The line, starting at 1.
        line: usize,
        /// The problem.
        message: String,
    },
}

/// An error of an injection. The text is the message of the webhook's answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// An annotation of the pod has an invalid value.
    #[error("pod {pod}: invalid annotations: {problems}")]
    Annotations {
        /// The pod.
        pod: String,
        /// The annotations, their values and problems, separated by semicolons.
        problems: String,
    },
    /// The pod names a template that does not exist.
    #[error("pod {pod}: injection template {template:?} does not exist; there are {known}")]
    UnknownTemplate {
        /// The pod.
        pod: String,
        /// The name.
        template: String,
        /// The templates that exist, separated by commas.
        known: String,
    },
    /// A template failed.
    #[error("pod {pod}: injection template {template:?}, line {line}: {message}")]
    Template {
        /// The pod.
        pod: String,
        /// The name of the template.
        template: String,
        /// The line of the template, starting at 1.
        line: usize,
        /// The problem.
        message: String,
    },
    /// The output of a template is not valid.
    #[error(
        "pod {pod}: injection template {template:?}: the output is not valid (line {line} of the output): {message}"
    )]
    Output {
        /// The pod.
        pod: String,
        /// The name of the template.
        template: String,
        /// The line of the output, starting at 1.
        line: u32,
        /// The problem.
        message: String,
    },
    /// The pod cannot be completed.
    #[error("pod {pod}: {message}")]
    Pod {
        /// The pod.
        pod: String,
        /// The problem.
        message: String,
    },
}

impl Error {
    /// The text without the name of the pod, for objects that are no pods.
    pub fn message(&self) -> String {
        let (Error::Annotations { pod, .. }
        | Error::UnknownTemplate { pod, .. }
        | Error::Template { pod, .. }
        | Error::Output { pod, .. }
        | Error::Pod { pod, .. }) = self;
        let text = self.to_string();
        let rest = text.strip_prefix(&format!("pod {pod}: ")).map(str::to_owned);
        rest.unwrap_or(text)
    }
}
