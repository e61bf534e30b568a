//! Extracts the series and labels of a query with a PromQL parser: a query that Prometheus refuses
//! is refused here.

use promql_parser::label::Labels;
use promql_parser::parser::token::T_LAND;
use promql_parser::parser::{
    self, BinaryExpr, Expr, LabelModifier, VectorMatchCardinality, VectorSelector,
};

/// The series and labels of a query.
#[derive(Debug, Default)]
pub(crate) struct Query {
    pub(crate) selectors: Vec<Selector>,
    /// Labels after `by`, `without`, `on`, `ignoring`, `group_left` and `group_right`.
    pub(crate) grouping: Vec<String>,
}

/// `name{label="value"}[5m]`.
#[derive(Debug)]
pub(crate) struct Selector {
    pub(crate) name: String,
    /// Labels and what they are compared with.
    pub(crate) matchers: Vec<(String, String)>,
    /// Whether a range is selected.
    pub(crate) over_time: bool,
    /// Whether only the series of targets with `belayer_build_info` are selected.
    pub(crate) of_belayer: bool,
}

/// Parses a query of Prometheus or of a dashboard.
pub(crate) fn read(text: &str) -> Result<Query, String> {
    // Grafana replaces it by a duration.
    let text = text.replace("$__rate_interval", "5m");
    let expression = parser::parse(&text).map_err(|why| format!("{text}: {why}"))?;
    let mut query = Query::default();
    query.read(&expression);
    Ok(query)
}

impl Query {
    fn read(&mut self, expression: &Expr) {
        match expression {
            Expr::VectorSelector(selector) => self.select(selector, false),
            Expr::MatrixSelector(range) => self.select(&range.vs, true),
            Expr::Aggregate(aggregate) => {
                self.group(aggregate.modifier.as_ref());
                self.read(&aggregate.expr);
                if let Some(parameter) = &aggregate.param {
                    self.read(parameter);
                }
            }
            Expr::Binary(binary) => {
                if let Some(modifier) = &binary.modifier {
                    self.group(modifier.matching.as_ref());
                    if let VectorMatchCardinality::ManyToOne(labels)
                    | VectorMatchCardinality::OneToMany(labels) = &modifier.card
                    {
                        self.name(labels);
                    }
                }
                let begun = self.selectors.len();
                self.read(&binary.lhs);
                if is_join(binary) {
                    for selector in &mut self.selectors[begun..] {
                        selector.of_belayer = true;
                    }
                }
                self.read(&binary.rhs);
            }
            Expr::Call(call) => call.args.args.iter().for_each(|inner| self.read(inner)),
            Expr::Unary(unary) => self.read(&unary.expr),
            Expr::Paren(paren) => self.read(&paren.expr),
            Expr::Subquery(subquery) => self.read(&subquery.expr),
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
        }
    }

    fn select(&mut self, selector: &VectorSelector, over_time: bool) {
        let matchers = selector.matchers.matchers.iter();
        self.selectors.push(Selector {
            name: selector.name.clone().unwrap_or_default(),
            matchers: matchers
                .map(|matcher| (matcher.name.clone(), matcher.value.clone()))
                .collect(),
            over_time,
            of_belayer: false,
        });
    }

    fn group(&mut self, modifier: Option<&LabelModifier>) {
        if let Some(LabelModifier::Include(labels) | LabelModifier::Exclude(labels)) = modifier {
            self.name(labels);
        }
    }

    fn name(&mut self, labels: &Labels) {
        self.grouping.extend(labels.labels.iter().cloned());
    }
}

/// `... and on (job, instance) belayer_build_info`.
fn is_join(binary: &BinaryExpr) -> bool {
    let matching = binary.modifier.as_ref().and_then(|it| it.matching.as_ref());
    let on_target = matching.is_some_and(|matching| {
        matches!(matching, LabelModifier::Include(on) if on.labels == ["job", "instance"])
    });
    let of_belayer = matches!(&*binary.rhs, Expr::VectorSelector(selector)
        if selector.name.as_deref() == Some("belayer_build_info"));
    binary.op.id() == T_LAND && on_target && of_belayer
}
