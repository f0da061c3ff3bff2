//! YAML in the form of `kubectl`.

pub(crate) use go_template::yaml::document;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value as Json, json};

    use super::*;
    use crate::manifests;

    #[test]
    fn objects_have_the_form_of_kubectl() {
        let value = json!({
            "kind": "VirtualService",
            "apiVersion": "networking.istio.io/v1",
            "spec": {"hosts": ["a.example", "*"], "http": [{"route": [{"weight": 1}, {}]}], "empty": [], "none": null},
            "script": "a\nb\n",
            "odd": {"on": "yes", "version": "1.10", "date": "2026-01-01", "10m": "10m", "space": " x",
                "ip": "10.1.2.3", "uid": "59cc5757-7fb4-47e9-9899-a0679422f655", "hex": "0b1f", "half": "1e9"}
        });
        let expected = "\
apiVersion: networking.istio.io/v1
kind: VirtualService
odd:
  10m: 10m
  date: \"2026-01-01\"
  half: \"1e9\"
  hex: \"0b1f\"
  ip: 10.1.2.3
  \"on\": \"yes\"
  space: \" x\"
  uid: 59cc5757-7fb4-47e9-9899-a0679422f655
  version: \"1.10\"
script: |
  a
  b
spec:
  empty: []
  hosts:
  - a.example
  - \"*\"
  http:
  - route:
    - weight: 1
    - {}
  none: null
";
        assert_eq!(document(&value), expected);
        assert_eq!(document(&json!([[1, [2]], "x"])), "- - 1\n  - - 2\n- x\n");
        assert_eq!(document(&json!({})), "{}\n");
    }

    fn values() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            any::<i64>().prop_map(Json::from),
            "[-a-z0-9 :#.+~'\"{}\\[\\]\n\t&*!|>%@`é]{0,12}".prop_map(Json::from),
            prop::sample::select(vec![
                "yes", "1e3", "0x1f", "1:30", "null", "~", ".5", "-", "---", "...", "1_000", "=", "? a"
            ])
            .prop_map(Json::from),
            "\\PC{0,8}".prop_map(Json::from),
        ];
        leaf.prop_recursive(4, 30, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
                prop::collection::btree_map("[-a-z0-9 :.~/]{1,6}", inner, 0..4)
                    .prop_map(|map| Json::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn written_values_are_read_back(value in values()) {
            let value = json!({"value": value});
            let text = document(&value);
            let read = manifests::parse_text(text.as_bytes()).unwrap();
            prop_assert_eq!(&read[0].0, &value, "{}", text);
        }
    }
}
