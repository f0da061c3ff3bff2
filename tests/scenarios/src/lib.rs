//! Scenario tests: objects, proxies, edits and expected answers in one file
