//! The difference of two lists of lines.

/// Above this number of lines on both sides together only the first difference is shown, because a full
/// comparison needs a table of the size of their product.
const FULL: usize = 2_000;

/// Lines of both, in order: `  ` common, `- ` only expected, `+ ` only found.
pub(super) fn diff(expected: &[String], found: &[String]) -> String {
    let same = expected.iter().zip(found).take_while(|(a, b)| a == b);
    let start = same.count();
    let (before, expected, found) = (&expected[..start], &expected[start..], &found[start..]);
    let mut out: Vec<String> = Vec::new();
    if start > 3 {
        out.push(format!("  ... {} lines in common", start - 3));
    }
    out.extend(before.iter().rev().take(3).rev().map(|l| format!("  {l}")));
    if expected.len() + found.len() > FULL {
        let first = |mark: &str, lines: &[String]| lines.first().map(|l| format!("{mark} {l}"));
        out.extend(first("-", expected));
        out.extend(first("+", found));
        out.push(format!(
            "  ... {} expected and {} written lines follow",
            expected.len(),
            found.len()
        ));
    } else {
        compare(expected, found, &mut out);
    }
    out.join("\n")
}

/// By the longest common subsequence.
fn compare(expected: &[String], found: &[String], out: &mut Vec<String>) {
    let width = found.len() + 1;
    let mut common = vec![0_u32; (expected.len() + 1) * width];
    for (i, line) in expected.iter().enumerate().rev() {
        for (j, other) in found.iter().enumerate().rev() {
            common[i * width + j] = if line == other {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < expected.len() || j < found.len() {
        let both = i < expected.len() && j < found.len();
        if both && expected[i] == found[j] {
            out.push(format!("  {}", expected[i]));
            i += 1;
            j += 1;
        } else if j == found.len()
            || (both && common[(i + 1) * width + j] >= common[i * width + j + 1])
        {
            out.push(format!("- {}", expected[i]));
            i += 1;
        } else {
            out.push(format!("+ {}", found[j]));
            j += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    fn lines(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[rstest]
    #[case::one_is_missing("a b c", "a c", "  a\n- b\n  c")]
    #[case::one_too_many("a c", "a b c", "  a\n+ b\n  c")]
    #[case::another("a b", "a x", "  a\n- b\n+ x")]
    #[case::nothing_written("a", "", "- a")]
    #[case::a_long_common_start(
        "1 2 3 4 5",
        "1 2 3 4",
        "  ... 1 lines in common\n  2\n  3\n  4\n- 5"
    )]
    fn the_difference_shows_missing_and_additional_lines(
        #[case] expected: &str,
        #[case] found: &str,
        #[case] shown: &str,
    ) {
        assert_eq!(super::diff(&lines(expected), &lines(found)), shown);
    }
}
